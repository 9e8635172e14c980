// What libplanq.so offers to the Python module. Its C functions are named planq_*; so are these, by
// a label, because nothing else may leave the library: C++ names would meet those of a program that
// links it. The header of a C program says nothing of planq_internal_*.
#pragma once

// Ends a declaration: `Device host_device() PLANQ_API(host_device);`
#define PLANQ_API(name) __asm__("planq_internal_" #name) __attribute__((visibility("default")))
