// What selection and launches answer. Nothing in the library prints, throws across a launch, or
// exits on user input: a function that can refuse returns one of these.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace planq {

// Why a row does not take a descriptor. Empty means accepted.
enum class ReasonKind : std::uint8_t {
  Accepted,
  Backend,     // the stream is another backend's
  DType,       // the row is compiled for other element types
  Scope,       // the row computes another scope
  Device,      // architecture or device limits
  Shape,       // this shape is another row's
  Feature,     // an option of the descriptor that the row does not implement
  Preference,  // a field of PlanPreference filtered it
};

struct Reason {
  ReasonKind kind = ReasonKind::Accepted;
  std::string text;

  static Reason accept() { return {}; }
  static Reason refuse(ReasonKind kind, std::string text) { return {kind, std::move(text)}; }
  bool accepted() const { return kind == ReasonKind::Accepted; }
};

// A fault in a descriptor: the field and the sentence. An empty field means no fault.
struct Fault {
  std::string field;
  std::string text;
  bool ok() const { return field.empty(); }
};

// The outcome of prepare and launch. `cuda_error` is a cudaError_t kept as an integer so that this
// header needs no CUDA. `operand` is the index of the operand the row cannot take.
struct Status {
  enum class Code : std::uint8_t { Ok, Operand, Cuda };
  Code code = Code::Ok;
  std::int16_t operand = -1;
  int cuda_error = 0;
  const char* text = "";

  static constexpr Status success() { return {}; }
  static constexpr Status cuda(int error) { return {Code::Cuda, -1, error, "CUDA"}; }
  constexpr bool ok() const { return code == Code::Ok; }
};

}  // namespace planq
