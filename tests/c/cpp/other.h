// What the files of the program share.
#pragma once

#include <planq.hpp>

// Rows of 4 float32, at most 16, to int8 with a scale for each row.
planq::Descriptor rows_descriptor();
planq::Plan select_elsewhere(const planq::Stream& stream);
// How often operator new was called in this process.
std::size_t allocations_so_far();
