// The readers of JSON, of stored plans and of descriptors, for a fuzzer: what each says of a text.
//
// They are compiled alone, with an operator that has a field of every kind. GCC marks every edge by
// a call, and a fuzzer wants counters: those are here, too.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/serial.h"
#include "core/stored.h"

namespace {

constexpr std::size_t kEdges = 1 << 14;
std::uint8_t counters[kEdges];
struct Edge {
  std::uintptr_t at, flags;
};
Edge edges[kEdges];

using planq::Json;

std::string said;

const char* answer(char kind, const std::string& text) {
  said = kind + text;
  return said.c_str();
}

std::string_view cut(std::string_view& text) {
  const std::size_t at = text.find('\0');
  const std::string_view first = text.substr(0, at);
  text.remove_prefix(at == text.npos ? text.size() : at + 1);
  return first;
}

// A value that is written and read again: 'v' and the text, or '!' where it has become another.
template <class Value, class Read, class Write>
const char* again(const Value& value, const Read& read, const Write& write) {
  const std::string text = planq::dump(write(value));
  Json json;
  std::string fault;
  if (!planq::parse_json(text, json, fault)) return answer('!', fault);
  Value other;
  if (!read(json, other)) return answer('!', text);
  const std::string twice = planq::dump(write(other));
  return answer(twice == text ? 'v' : '!', text);
}

}  // namespace

// Each answers with a letter and a text: 'v' for a value, 'f' for the sentence about a fault, '!'
// for what must not be.
#define FUZZED extern "C" __attribute__((visibility("default")))

FUZZED const char* native_json(const char* data, std::size_t size) {
  Json value;
  std::string fault;
  if (!planq::parse_json({data, size}, value, fault)) return answer('f', fault);
  if (planq::shown(value).empty() || !(value == value)) return answer('!', "it is not itself");
  const auto read = [](const Json& json, Json& other) { return (other = json) == json; };
  return again(value, read, [](const Json& json) { return json; });
}

FUZZED const char* native_stored(const char* data, std::size_t size) {
  std::string_view rest(data, size);
  Json first, second;
  if (std::string fault = planq::read_stored(cut(rest), first); !fault.empty())
    return answer('f', fault);
  if (std::string fault = planq::read_stored(rest, second); !fault.empty())
    return answer('f', fault);
  if (!planq::differences_of(first, first).empty()) return answer('!', "it differs from itself");
  const auto differences = planq::differences_of(first, second);
  if (differences.size() != planq::differences_of(second, first).size())
    return answer('!', "it differs in one direction");
  return answer('v', planq::mismatch_text(differences));
}

FUZZED const char* native_descriptor(const char* data, std::size_t size) {
  Json value;
  std::string fault;
  if (!planq::parse_json({data, size}, value, fault)) return answer('f', fault);
  planq::Descriptor descriptor;
  if (const planq::Fault why = planq::read_descriptor(value, descriptor); !why.ok())
    return answer('f', why.field + ": " + why.text);
  planq::operands_json(descriptor);
  const auto read = [](const Json& json, planq::Descriptor& other) {
    return planq::read_descriptor(json, other).ok();
  };
  return again(descriptor, read, planq::descriptor_json);
}

FUZZED const char* native_preference(const char* data, std::size_t size) {
  Json value;
  std::string fault;
  if (!planq::parse_json({data, size}, value, fault)) return answer('f', fault);
  planq::Preference preference;
  if (const planq::Fault why = planq::read_preference(value, preference); !why.ok())
    return answer('f', why.field + ": " + why.text);
  const auto read = [](const Json& json, planq::Preference& other) {
    return planq::read_preference(json, other).ok();
  };
  return again(preference, read, planq::preference_json);
}

// --- The marks: hidden, since the fuzzer has functions of these names and refuses GCC's ----------

#define HIDDEN extern "C" __attribute__((visibility("hidden")))

HIDDEN void __sanitizer_cov_trace_pc() {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  const auto base = reinterpret_cast<std::uintptr_t>(&counters);
  ++counters[(here - base) * 0x9e3779b97f4a7c15u >> 50];
}

// The fuzzer's own, which learn from what is compared; each goes on with a jump, so that they see
// where.
#define COMPARISONS(_)                              \
  _(trace_cmp1, std::uint8_t, std::uint8_t)         \
  _(trace_cmp2, std::uint16_t, std::uint16_t)       \
  _(trace_cmp4, std::uint32_t, std::uint32_t)       \
  _(trace_cmp8, std::uint64_t, std::uint64_t)       \
  _(trace_const_cmp1, std::uint8_t, std::uint8_t)   \
  _(trace_const_cmp2, std::uint16_t, std::uint16_t) \
  _(trace_const_cmp4, std::uint32_t, std::uint32_t) \
  _(trace_const_cmp8, std::uint64_t, std::uint64_t) \
  _(trace_switch, std::uint64_t, std::uint64_t*)
#define DEFINE(name, First, Second)                                                            \
  __attribute__((visibility("default"))) void (*fuzzer_##name)(First, Second) = [](First,      \
                                                                                   Second) {}; \
  HIDDEN void __sanitizer_cov_##name(First a, Second b) { fuzzer_##name(a, b); }
COMPARISONS(DEFINE)

// The fuzzer has none of these.
HIDDEN void __sanitizer_cov_trace_cmpf(float, float) {}
HIDDEN void __sanitizer_cov_trace_cmpd(double, double) {}

// Tells the fuzzer of the counters, and of an edge for each.
FUZZED void fuzz_guided(void (*counted)(std::uint8_t*, std::uint8_t*),
                        void (*named)(const std::uintptr_t*, const std::uintptr_t*)) {
  for (std::size_t i = 0; i < kEdges; ++i) edges[i] = {i + 1, 0};
  counted(counters, counters + kEdges);
  named(&edges[0].at, &edges[0].at + 2 * kEdges);
}
