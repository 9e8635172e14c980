// What selection and launches answer. Nothing in the library prints, throws across a launch, or
// exits on user input: a function that can refuse returns one of these.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/vocabulary.h"

namespace planq {

// What kind of reason a kernel has not to take a descriptor.
#define PLANQ_REASON_KIND_NAMES(_)                                                                 \
  _(Accepted, "accepted")                                                                          \
  _(Backend, "backend")       /* the stream is another backend's */                                \
  _(DType, "dtype")           /* the kernel is compiled for other element types */                 \
  _(Scope, "scope")           /* the kernel computes another scope */                              \
  _(Device, "device")         /* architecture or device limits */                                  \
  _(Shape, "shape")           /* this shape is another kernel's */                                 \
  _(Feature, "feature")       /* an option of the descriptor that the kernel does not implement */ \
  _(Preference, "preference") /* a field of PlanPreference filtered it */
PLANQ_DEFINE(ReasonKind, PLANQ_REASON_KIND_NAMES)

// A refusal is kept in pieces and becomes a sentence when somebody reads it: of the hundreds of
// reasons in a selection, mostly nobody does. Pieces of text belong to the program, or to the
// descriptor and the preference that were refused.
class Reason {
 public:
  ReasonKind kind = ReasonKind::Accepted;

  static Reason accept() { return {}; }
  template <class... Pieces>
  static Reason refuse(ReasonKind kind, const Pieces&... pieces) {
    static_assert(sizeof...(pieces) <= kPieces);
    static_assert(!(std::is_same_v<Pieces, std::string> || ...), "nobody would keep the text");
    Reason reason;
    reason.kind = kind;
    (reason.append(pieces), ...);
    return reason;
  }
  bool accepted() const { return kind == ReasonKind::Accepted; }

  std::string text() const {
    std::string words;
    for (int i = 0; i < count_; ++i) {
      if (pieces_[i].text)
        words.append(pieces_[i].text, static_cast<std::size_t>(pieces_[i].number));
      else
        words += std::to_string(pieces_[i].number);
    }
    return words;
  }

 private:
  static constexpr int kPieces = 10;
  // A text with its length, or a number.
  struct Piece {
    const char* text;
    std::int64_t number;
  };

  void append(std::string_view text) {
    pieces_[count_++] = {text.data(), static_cast<std::int64_t>(text.size())};
  }
  template <std::integral N>
  void append(N number) {
    pieces_[count_++] = {nullptr, static_cast<std::int64_t>(number)};
  }

  int count_ = 0;
  std::array<Piece, kPieces> pieces_;
};

// A fault in a descriptor: the field and the sentence. An empty field means no fault.
struct Fault {
  std::string field;
  std::string text;
  bool ok() const { return field.empty(); }
};

// The outcome of prepare, bind and launch. `cuda_error` is a cudaError_t kept as an integer so that
// this header needs no CUDA.
struct Status {
  enum class Code : std::uint8_t { Ok, Cuda, Refused };
  Code code = Code::Ok;
  int cuda_error = 0;

  static constexpr Status success() { return {}; }
  static constexpr Status refuse(int error) { return {Code::Refused, error}; }
  static constexpr Status cuda(int error) { return {Code::Cuda, error}; }
  constexpr bool ok() const { return code == Code::Ok; }
  // The stream cannot run the launch at all, and nothing of it was done.
  constexpr bool refused() const { return code == Code::Refused; }
};

}  // namespace planq
