// What libplanq.so offers to the bindings; everything else in it is hidden.
#pragma once

#define PLANQ_API __attribute__((visibility("default")))
