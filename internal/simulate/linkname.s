// Empty. With an assembly file in the package the compiler accepts functions without a body, and so methods of Kueue's
// scheduler that are not exported can be called.
