package ledger

import resourcev1 "k8s.io/api/resource/v1"

func MappingsOf(d *resourcev1.Device) *Mappings { return nil }
func DefaultConsumption(d *resourcev1.Device) Consumption { return nil }
