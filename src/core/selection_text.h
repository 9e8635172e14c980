// Selections in words: the table that explain() prints, and the errors that have it in their end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/api.h"
#include "core/select.h"

namespace planq {

// What the table says of a kernel.
struct SelectionLine {
  std::string sku, body;
  std::int64_t rank = 0;
  std::uint64_t workspace = 0;
  std::string verdict, reason_kind;
  std::vector<std::string> constraints;
};

// "output: an address divisible by 16", one for each.
std::vector<std::string> constraint_texts(const Operator& op, const Kernel& kernel)
    PLANQ_API(constraint_texts);

// Of a kernel; the reason is empty where it takes the descriptor.
std::string verdict_text(bool chosen, std::string_view reason) PLANQ_API(verdict_text);
std::string selection_text(const std::vector<SelectionLine>& lines) PLANQ_API(selection_text);

// Why nothing is selected: a pin that names nothing, or that no kernel takes the descriptor.
std::string no_kernel_sentence(std::string_view op, const Preference& preference,
                               const std::vector<SelectionLine>& lines)
    PLANQ_API(no_kernel_sentence);
// That sentence, and the table.
std::string no_kernel_text(const Descriptor& descriptor, const Preference& preference,
                           const Device& device);

}  // namespace planq
