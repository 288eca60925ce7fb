// Empty. With an assembly file in the package the compiler accepts functions without a body, and so the tests can declare
// the method of Kueue's scheduler that they hold Ask against.
