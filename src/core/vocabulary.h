// The small closed vocabularies that descriptors and guarantees are written in. An enumerator and
// its name stand together here and nowhere else; Python's enumerations are checked against them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace planq {

// The names that Python, JSON and messages use; the position is the enumerator's value.
template <class E>
inline constexpr std::array<std::string_view, 0> kNames{};

template <class E>
constexpr std::string_view name_of(E value) {
  return kNames<E>[static_cast<std::size_t>(value)];
}

// An enumeration without its type, for tables of several.
struct Vocabulary {
  std::string_view type;  // as C++ and Python call it
  std::span<const std::string_view> names;

  // Empty where the enumerator has none, or is beyond all of them.
  constexpr std::string_view name(std::uint8_t enumerator) const {
    return enumerator < names.size() ? names[enumerator] : std::string_view();
  }
};
template <class E>
inline constexpr Vocabulary kVocabulary{};

// An enumerator, or none.
template <class E>
class OptionalEnum {
 public:
  constexpr OptionalEnum() = default;
  constexpr OptionalEnum(E value) : value_(static_cast<std::uint8_t>(value)) {}
  constexpr explicit operator bool() const { return value_ != kNone; }
  constexpr E operator*() const { return static_cast<E>(value_); }

 private:
  static constexpr std::uint8_t kNone = 0xff;
  std::uint8_t value_ = kNone;
};

// Defines an enumeration from its list of (enumerator, name, ...).
#define PLANQ_ENUMERATOR(value, ...) value,
#define PLANQ_NAME(value, name, ...) name,
#define PLANQ_ONE_MORE(...) +1
#define PLANQ_DEFINE(Type, LIST)                                                      \
  enum class Type : std::uint8_t { LIST(PLANQ_ENUMERATOR) };                          \
  template <>                                                                         \
  inline constexpr std::array<std::string_view, 0 LIST(PLANQ_ONE_MORE)> kNames<Type>{ \
      LIST(PLANQ_NAME)};                                                              \
  template <>                                                                         \
  inline constexpr Vocabulary kVocabulary<Type>{#Type, kNames<Type>};

// clang-format off
#define PLANQ_SCOPE_KIND_NAMES(_) \
  _(Tensor, "tensor") _(Channel, "channel") _(Token, "token") _(Group, "group") _(Block, "block") \
  _(Pair, "pair")
#define PLANQ_MODE_NAMES(_) _(Symmetric, "symmetric") _(Asymmetric, "asymmetric")
#define PLANQ_QUOTIENT_NAMES(_) _(Divide, "divide") _(Reciprocal, "reciprocal") _(Ratio, "ratio")
#define PLANQ_NON_FINITE_NAMES(_) _(Propagate, "propagate") _(Saturate, "saturate")
#define PLANQ_NIBBLE_ORDER_NAMES(_) _(LowFirst, "low_first") _(HighFirst, "high_first")
#define PLANQ_CONVENTION_NAMES(_) \
  _(Planq, "planq") _(CompressedTensors, "compressed_tensors") _(Ggml, "ggml") \
  _(BitsAndBytes, "bitsandbytes") _(Baracuda, "baracuda") _(DeepSpeed, "deepspeed") \
  _(DeepSpeedIntx, "deepspeed_intx") _(Mx, "mx") _(MxRoundUp, "mx_round_up") _(Nvfp4, "nvfp4") \
  _(Vllm, "vllm")
#define PLANQ_ROUNDING_NAMES(_) \
  _(NearestEven, "nearest_even") _(Stochastic, "stochastic") _(None, "none") \
  _(NearestAway, "nearest_away") _(NearestUp, "nearest_up")
#define PLANQ_BACKEND_NAMES(_) _(Host, "host") _(Cuda, "cuda")
#define PLANQ_DETERMINISM_NAMES(_) \
  _(NotGuaranteed, "not_guaranteed") _(RunToRun, "run_to_run") _(GpuToGpu, "gpu_to_gpu") \
  _(BitExact, "bit_exact")
#define PLANQ_MATH_PRECISION_NAMES(_) \
  _(F32, "f32") _(F64, "f64") _(Int32, "int32") _(TensorCoreS8, "tensor_core_s8") \
  _(TensorCoreF16, "tensor_core_f16") _(TensorCoreBF16, "tensor_core_bf16") \
  _(TensorCoreE4M3, "tensor_core_e4m3") _(TensorCoreE5M2, "tensor_core_e5m2") _(None, "none")

// Of operands. InOut: read, and updated in place.
#define PLANQ_ROLE_NAMES(_) _(Input, "input") _(Output, "output") _(InOut, "inout")
// A list is any number of tensors, of which the descriptor says the shapes. A scalar is one number:
// the caller's own, or an element in memory.
#define PLANQ_OPERAND_KIND_NAMES(_) _(Tensor, "tensor") _(List, "list") _(Scalar, "scalar")

#define PLANQ_VOCABULARIES(_)                  \
  _(ScopeKind, PLANQ_SCOPE_KIND_NAMES)         \
  _(Mode, PLANQ_MODE_NAMES)                    \
  _(Quotient, PLANQ_QUOTIENT_NAMES)            \
  _(NonFinite, PLANQ_NON_FINITE_NAMES)         \
  _(NibbleOrder, PLANQ_NIBBLE_ORDER_NAMES)     \
  _(Convention, PLANQ_CONVENTION_NAMES)        \
  _(Rounding, PLANQ_ROUNDING_NAMES)            \
  _(Backend, PLANQ_BACKEND_NAMES)              \
  _(Determinism, PLANQ_DETERMINISM_NAMES)      \
  _(MathPrecision, PLANQ_MATH_PRECISION_NAMES) \
  _(Role, PLANQ_ROLE_NAMES)                    \
  _(OperandKind, PLANQ_OPERAND_KIND_NAMES)

PLANQ_VOCABULARIES(PLANQ_DEFINE)
// clang-format on

}  // namespace planq
