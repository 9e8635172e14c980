// planq for C++17: planq.h with lifetimes, exceptions and descriptors that need no JSON library.
//
//   auto desc = planq::Descriptor("dynamic_range_quantize")
//                   .set("shape", {planq::Dim("m", 16), 4})
//                   .set("input_dtype", planq::dtypes::float32)
//                   .set("output_dtype", planq::dtypes::int8)
//                   .set("scope", planq::Scope::token());
//   auto stream = planq::Stream::host();
//   auto plan = planq::Plan::select(stream, desc);
//   plan.run(stream, {}, {{"input", {x, {2, 4}}}, {"output", {q, {2, 4}}}, {"scale", {s, {2}}}});
//
// Everything is in this file and in libplanq.so. docs/c.md has the whole program. Names and rules
// are those of planq.h, which says what a descriptor, a preference, an operand and a workspace are.
//
// Errors: a function that fails throws the planq::Error of its code, with planq's sentence. A
// function whose name begins with `try_`, and can_implement(), throws nothing: it answers a Result
// or a Status.
//
// A plan and a launch are references that are counted: copies share one, and the last copy ends it.
// Any number of threads may use one plan. To assign to an object while another thread uses it is a
// race, as with every object of C++.
#ifndef PLANQ_HPP
#define PLANQ_HPP

#if __cplusplus < 201703L
#error "planq.hpp needs C++17"
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <locale>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "planq.h"

namespace planq {

// --- Errors --------------------------------------------------------------------------------------

// What planq refused, and why.
class Error : public std::runtime_error {
 public:
  Error(planq_code code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  planq_code code() const noexcept { return code_; }
  // Such as "argument".
  const char* name() const noexcept { return planq_code_name(code_); }

 private:
  planq_code code_;
};

// One class for each code, all of them planq::Error.
template <planq_code kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& sentence) : Error(kCode, sentence) {}
};
using DescriptorError = ErrorOf<PLANQ_ERROR_DESCRIPTOR>;
using NoKernelError = ErrorOf<PLANQ_ERROR_NO_KERNEL>;
using ArgumentError = ErrorOf<PLANQ_ERROR_ARGUMENT>;
using WorkspaceError = ErrorOf<PLANQ_ERROR_WORKSPACE>;
using StreamError = ErrorOf<PLANQ_ERROR_STREAM>;
using PlanMismatchError = ErrorOf<PLANQ_ERROR_PLAN_MISMATCH>;
using CudaError = ErrorOf<PLANQ_ERROR_CUDA>;
using HandleError = ErrorOf<PLANQ_ERROR_HANDLE>;
using BufferError = ErrorOf<PLANQ_ERROR_BUFFER>;
using MemoryError = ErrorOf<PLANQ_ERROR_MEMORY>;
using InternalError = ErrorOf<PLANQ_ERROR_INTERNAL>;

// How a call ended: true where it did what it is for.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  // Of a call that just ended in this thread, whose sentence planq still has.
  explicit Status(planq_code code) noexcept : code_(code) {
    if (code == PLANQ_OK) return;
    try {
      message_ = planq_last_error();
    } catch (...) {  // no memory for the sentence: the code says what it is
    }
  }

  explicit operator bool() const noexcept { return code_ == PLANQ_OK; }
  planq_code code() const noexcept { return code_; }
  // "ok", or such as "argument".
  const char* name() const noexcept { return planq_code_name(code_); }
  // planq's sentence; empty where the call succeeded.
  const std::string& message() const noexcept { return message_; }

  // Throws the error of the code, if it is one.
  void check() const { check_codes(std::make_integer_sequence<planq_code, kCodes>()); }

 private:
  static constexpr planq_code kCodes = PLANQ_ERROR_INTERNAL + 1;

  template <planq_code... kCode>
  void check_codes(std::integer_sequence<planq_code, kCode...>) const {
    (check_code<kCode>(), ...);
    if (code_ != PLANQ_OK) throw Error(code_, message_);  // of a later version of the library
  }
  template <planq_code kCode>
  void check_code() const {
    if constexpr (kCode != PLANQ_OK) {
      if (code_ == kCode) throw ErrorOf<kCode>(message_);
    }
  }

  planq_code code_ = PLANQ_OK;
  std::string message_;
};

// What a call made, or the status that says why it made nothing.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) noexcept : value_(std::move(value)) {}
  Result(Status status) noexcept : status_(std::move(status)) {}

  explicit operator bool() const noexcept { return value_.has_value(); }
  const Status& status() const noexcept { return status_; }
  // Throws the error of the status, if there is no value.
  T& value() & {
    status_.check();
    return *value_;
  }
  T&& value() && {
    status_.check();
    return std::move(*value_);
  }
  // Of a result that is true.
  T& operator*() noexcept { return *value_; }
  T* operator->() noexcept { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

namespace detail {

inline void check(planq_code code) {
  if (code != PLANQ_OK) Status(code).check();
}

// The text that a function of planq.h answers: its size first, then the bytes.
template <class Function, class... Arguments>
std::string text_of(Function function, Arguments... arguments) {
  std::size_t size = 0;
  check(function(arguments..., nullptr, 0, &size));
  std::string text(size, '\0');
  check(function(arguments..., text.data(), text.size(), nullptr));
  text.resize(size - 1);  // the final zero is the string's own
  return text;
}

}  // namespace detail

// --- The build -----------------------------------------------------------------------------------

inline std::string version() { return planq_version(); }
inline std::string build_id() { return planq_build_id(); }
inline std::string source_id() { return planq_source_id(); }
// Every operator, in JSON.
inline std::string operators() { return detail::text_of(planq_operators); }

// --- Element types -------------------------------------------------------------------------------

// An element type: its name in descriptors, and DLPack's code and bits.
struct DType {
  const char* name;
  std::uint8_t code, bits;
};
constexpr bool operator==(DType a, DType b) { return a.code == b.code && a.bits == b.bits; }
constexpr bool operator!=(DType a, DType b) { return !(a == b); }

// In memory, two int4, uint4 or float4_e2m1fn share a byte, which is a tensor's uint8.
namespace dtypes {
inline constexpr DType float16{"float16", 2, 16}, bfloat16{"bfloat16", 4, 16},
    float32{"float32", 2, 32}, float64{"float64", 2, 64}, int8{"int8", 0, 8}, uint8{"uint8", 1, 8},
    int4{"int4", 0, 4}, uint4{"uint4", 1, 4}, int32{"int32", 0, 32}, int64{"int64", 0, 64},
    float8_e4m3fn{"float8_e4m3fn", 10, 8}, float8_e5m2{"float8_e5m2", 12, 8},
    float8_e8m0fnu{"float8_e8m0fnu", 14, 8}, float6_e2m3fn{"float6_e2m3fn", 15, 6},
    float6_e3m2fn{"float6_e3m2fn", 16, 6}, float4_e2m1fn{"float4_e2m1fn", 17, 4},
    boolean{"bool", 6, 8};
inline constexpr DType all[] = {
    float16,        bfloat16,      float32,       float64,       int8,          uint8,
    int4,           uint4,         int32,         int64,         float8_e4m3fn, float8_e5m2,
    float8_e8m0fnu, float6_e2m3fn, float6_e3m2fn, float4_e2m1fn, boolean};
}  // namespace dtypes

// The element type of a C++ type. For a type of your own, such as __nv_bfloat16, specialize it:
//   template <> struct planq::DTypeOf<__nv_bfloat16> {
//     static constexpr planq::DType value = planq::dtypes::bfloat16;
//   };
template <class T>
struct DTypeOf {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, long double>,
                "name the element type of a tensor of this type, or specialize planq::DTypeOf");
  static constexpr std::uint8_t kCode = std::is_same_v<T, bool>       ? 6
                                        : std::is_floating_point_v<T> ? 2
                                        : std::is_unsigned_v<T>       ? 1
                                                                      : 0;
  static constexpr DType find() {
    for (const DType& each : dtypes::all)
      if (each == DType{"", kCode, 8 * sizeof(T)}) return each;
    return {"", kCode, 8 * sizeof(T)};  // none of planq's: an operand of it is refused
  }
  static constexpr DType value = find();
};

// --- Descriptors and preferences -----------------------------------------------------------------

// A value in a descriptor: a number, a text, true or false, null (nullptr), an element type, a Dim,
// a Scope, or a list of values in braces.
class Json {
 public:
  Json(std::nullptr_t) : text_("null") {}
  Json(const char* value) : Json(std::string_view(value)) {}
  Json(const std::string& value) : Json(std::string_view(value)) {}
  Json(std::string_view value) : text_(quoted(value)) {}
  Json(DType dtype) : Json(dtype.name) {}
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Json(T value) {
    if constexpr (std::is_same_v<T, bool>)
      text_ = value ? "true" : "false";
    else
      text_ = std::to_string(value);
  }
  template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
  Json(T value) : text_(written(value)) {}
  Json(std::initializer_list<Json> items) : text_(listed(items)) {}
  template <class T>
  Json(const std::vector<T>& items) : text_(listed(items)) {}

  // A text that is JSON already.
  static Json raw(std::string text) {
    Json made = nullptr;
    made.text_ = std::move(text);
    return made;
  }
  // An object, such as {{"kind", "channel"}, {"axis", 0}}.
  static Json object(std::initializer_list<std::pair<const char*, Json>> members) {
    Json made = raw("{}");
    for (const auto& [name, value] : members) made.put(name, value);
    return made;
  }

  const std::string& text() const noexcept { return text_; }
  // Adds a member to an object. Throws DescriptorError where JSON has no such number.
  void put(std::string_view name, const Json& value) {
    for (const char* none : {"nan", "-nan", "inf", "-inf"})
      if (value.text_ == none)
        throw DescriptorError(std::string(name) + ": expected a finite number, got " + none);
    const std::size_t last = text_.find_last_of('}');
    if (last != std::string::npos) text_.erase(last);
    const std::size_t before = text_.find_last_not_of(" \t\r\n");
    const bool first = before != std::string::npos && text_[before] == '{';
    text_ += (first ? "" : ", ") + quoted(name) + ": " + value.text_ + "}";
  }

 private:
  static std::string quoted(std::string_view value) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text = "\"";
    for (const char letter : value) {
      const auto code = static_cast<unsigned char>(letter);
      if (code < 0x20)
        text += std::string("\\u00") + kDigits[code >> 4] + kDigits[code & 15];
      else
        text +=
            letter == '"' || letter == '\\' ? std::string("\\") + letter : std::string(1, letter);
    }
    return text + "\"";
  }
  // With as many digits as the number needs, whatever the locale is.
  static std::string written(double value) {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text.precision(17);
    text << value;
    return text.str();
  }
  template <class Items>
  static std::string listed(const Items& items) {
    std::string text = "[";
    for (const auto& item : items) text += (text.size() > 1 ? ", " : "") + Json(item).text_;
    return text + "]";
  }

  std::string text_;
};

// An extent of a shape that is known when the plan runs, up to `max`.
class Dim : public Json {
 public:
  Dim(const char* name, std::int64_t max) : Json(object({{"dim", name}, {"max", max}})) {}
};

// Which elements share a scale.
class Scope : public Json {
 public:
  static Scope tensor() { return Scope(object({{"kind", "tensor"}})); }
  static Scope channel(int axis) { return Scope(object({{"kind", "channel"}, {"axis", axis}})); }
  static Scope token() { return Scope(object({{"kind", "token"}})); }
  static Scope group(std::int64_t size, int axis = -1) {
    return Scope(object({{"kind", "group"}, {"axis", axis}, {"size", size}}));
  }
  static Scope block(std::int64_t rows, std::int64_t columns) {
    return Scope(object({{"kind", "block"}, {"rows", rows}, {"columns", columns}}));
  }

 private:
  explicit Scope(Json object) : Json(std::move(object)) {}
};

// What to compute: an operator, and its fields under the names that they have in Python. A field
// that is not set has its default. What is wrong with one, the selection says.
class Descriptor {
 public:
  explicit Descriptor(std::string_view op) : json_(Json::object({{"op", op}})) {}
  // What desc.to_json() of the Python package wrote.
  static Descriptor from_json(std::string text) {
    Descriptor made("");
    made.json_ = Json::raw(std::move(text));
    return made;
  }

  // A field that is set twice is refused by the selection.
  Descriptor& set(std::string_view name, const Json& value) {
    json_.put(name, value);
    return *this;
  }
  const std::string& json() const noexcept { return json_.text(); }

 private:
  Json json_;
};

// What a kernel has to be. Each field that is set removes kernels; planq_select() in planq.h says
// what they mean and what their defaults are.
class Preference {
 public:
  Preference() = default;
  // What a stored plan has as its preference.
  static Preference from_json(std::string text) {
    Preference made;
    made.json_ = Json::raw(std::move(text));
    return made;
  }

  // "not_guaranteed", "run_to_run", "gpu_to_gpu" or "bit_exact".
  Preference& determinism(std::string_view least) { return set("determinism", least); }
  Preference& batch_invariant(bool required = true) { return set("batch_invariant", required); }
  Preference& max_ulp(std::int64_t most) { return set("max_ulp", most); }
  Preference& max_workspace_bytes(std::int64_t most) { return set("max_workspace_bytes", most); }
  // "host" or "cuda".
  Preference& backend(std::string_view name) { return set("backend", name); }
  Preference& sku(std::string_view name) { return set("sku", name); }
  Preference& body(std::string_view name) { return set("body", name); }

  Preference& set(std::string_view name, const Json& value) {
    json_.put(name, value);
    return *this;
  }
  const std::string& json() const noexcept { return json_.text(); }

 private:
  Json json_ = Json::object({});
};

// --- Memory --------------------------------------------------------------------------------------

// Where memory is, in DLPack's numbers.
struct Memory {
  std::int32_t type = 1, index = 0;

  static constexpr Memory host() { return {1, 0}; }
  static constexpr Memory cuda(std::int32_t index = 0) { return {2, index}; }
  static constexpr Memory managed(std::int32_t index = 0) { return {13, index}; }
};

// Extents or strides of up to 8 axes. More are counted but not kept: planq refuses such a tensor.
class Shape {
 public:
  static constexpr std::size_t kMost = 8;

  Shape() noexcept = default;
  Shape(std::initializer_list<std::int64_t> extents) noexcept
      : Shape(extents.begin(), extents.size()) {}
  Shape(const std::vector<std::int64_t>& extents) noexcept
      : Shape(extents.data(), extents.size()) {}
  Shape(const std::int64_t* extents, std::size_t count) noexcept
      : size_(static_cast<std::int32_t>(count)) {
    for (std::size_t axis = 0; axis < count && axis < kMost; ++axis) extents_[axis] = extents[axis];
  }

  std::int32_t size() const noexcept { return size_; }
  const std::int64_t* data() const noexcept { return extents_.data(); }
  const std::int64_t* begin() const noexcept { return data(); }
  const std::int64_t* end() const noexcept {
    const auto count = static_cast<std::size_t>(size_);
    return data() + (count < kMost ? count : kMost);
  }
  std::int64_t operator[](std::size_t axis) const noexcept { return extents_[axis]; }

 private:
  std::array<std::int64_t, kMost> extents_;  // the first of them alone are set
  std::int32_t size_ = 0;
};

// Memory of the caller's, as an operand. It has to stay as planq.h says; the Tensor need not.
class Tensor {
 public:
  // The type of the elements is that of the pointer: Tensor(x, {2, 4}), also of `float x[2][4]`.
  template <class T, std::enable_if_t<!std::is_void_v<T>, int> = 0>
  Tensor(T* data, const Shape& shape, Memory memory = {}) noexcept
      : Tensor(data, DTypeOf<std::remove_cv_t<std::remove_all_extents_t<T>>>::value, shape,
               memory) {}
  Tensor(const void* data, DType dtype, const Shape& shape, Memory memory = {}) noexcept
      : data_(const_cast<void*>(data)), dtype_(dtype), memory_(memory), shape_(shape) {}

  // The same memory with strides, in elements; without them it is compact, in C order.
  // Throws ArgumentError where there are not as many strides as extents.
  Tensor with_strides(const Shape& strides) const {
    if (strides.size() != shape_.size())
      throw ArgumentError("strides: expected " + std::to_string(shape_.size()) + " of them, got " +
                          std::to_string(strides.size()));
    Tensor made = *this;
    made.strides_ = strides;
    return made;
  }

  void* data() const noexcept { return data_; }
  DType dtype() const noexcept { return dtype_; }
  const Shape& shape() const noexcept { return shape_; }
  Memory memory() const noexcept { return memory_; }

  // As planq.h has it, with addresses that are this object's.
  void describe(planq_tensor& made) const noexcept {
    made.data = data_;
    made.device.device_type = static_cast<decltype(made.device.device_type)>(memory_.type);
    made.device.device_id = memory_.index;
    made.ndim = shape_.size();
    made.dtype.code = dtype_.code;
    made.dtype.bits = dtype_.bits;
    made.dtype.lanes = 1;
    made.shape = const_cast<std::int64_t*>(shape_.data());
    made.strides = strides_ ? const_cast<std::int64_t*>(strides_->data()) : nullptr;
    made.byte_offset = 0;
  }

 private:
  void* data_;
  DType dtype_;
  Memory memory_;
  Shape shape_;
  std::optional<Shape> strides_;
};

// Tensors that are one operand together. It is made once: calls that get it allocate nothing.
class TensorList {
 public:
  explicit TensorList(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
    described_.resize(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].describe(described_[i]);
      pointers_.push_back(&described_[i]);
    }
  }
  TensorList(TensorList&&) noexcept = default;
  TensorList& operator=(TensorList&&) noexcept = default;

  std::size_t size() const noexcept { return tensors_.size(); }
  // As planq.h has it. A list without tensors has an address too: it is given, and empty.
  planq_tensor* const* data() const noexcept {
    return pointers_.empty() ? &none_ : pointers_.data();
  }

 private:
  std::vector<Tensor> tensors_;
  std::vector<planq_tensor> described_;
  std::vector<planq_tensor*> pointers_;
  planq_tensor* none_ = nullptr;
};

// One operand of a call: its name, and a tensor, a TensorList, a number by value, or nullptr where
// it is left out. A list has to stay until the call returns, and so has the name.
class Operand {
 public:
  Operand(const char* name, std::nullptr_t) noexcept : name_(name) {}
  Operand(const char* name, const Tensor& tensor) noexcept : name_(name), tensor_(tensor) {}
  Operand(const char* name, const TensorList& list) noexcept : name_(name), list_(&list) {}
  Operand(const char* name, TensorList&& list) = delete;
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Operand(const char* name, T value) noexcept : name_(name) {
    if constexpr (std::is_floating_point_v<T>) {
      type_ = PLANQ_FLOAT64;
      value_.real = static_cast<double>(value);
    } else {
      type_ = std::is_same_v<T, bool> ? PLANQ_BOOL : PLANQ_INT64;
      value_.integer = static_cast<std::int64_t>(value);
    }
  }

  // As planq.h has it; `tensor` and `pointer` are room for what it points to.
  void describe(planq_operand& made, planq_tensor& tensor, planq_tensor*& pointer) const noexcept {
    made.name = name_;
    made.type = type_;
    made.unused = 0;
    made.value = value_;
    made.tensors = list_ ? list_->data() : nullptr;
    // One that is absent, also of a list: nothing at no address would be an empty list.
    made.count = list_ ? list_->size() : 1;
    if (!tensor_) return;
    tensor_->describe(tensor);
    pointer = &tensor;
    made.tensors = &pointer;
  }

 private:
  const char* name_;
  std::int32_t type_ = PLANQ_TENSORS;
  decltype(planq_operand::value) value_{};
  const TensorList* list_ = nullptr;
  std::optional<Tensor> tensor_;
};

// The operands of a call, in any order: a list in braces, or a vector that stays until it returns.
class Operands {
 public:
  // std::data(): what is in braces lives until the end of the call, as a string_view's letters do.
  Operands(std::initializer_list<Operand> operands) noexcept
      : data_(std::data(operands)), size_(operands.size()) {}
  Operands(const std::vector<Operand>& operands) noexcept
      : data_(operands.data()), size_(operands.size()) {}

  // Calls a function with the operands as planq.h has them. Nothing is allocated.
  template <class Call>
  planq_code give(const Call& call) const noexcept {
    std::array<planq_tensor, kMost> tensors;
    std::array<planq_tensor*, kMost> pointers;
    std::array<planq_operand, kMost> described;
    // No operator has so many: one of the first is a stranger to it, or comes twice.
    const std::size_t count = size_ < kMost ? size_ : kMost;
    for (std::size_t i = 0; i < count; ++i)
      data_[i].describe(described[i], tensors[i], pointers[i]);
    return call(described.data(), count);
  }

 private:
  static constexpr std::size_t kMost = PLANQ_MOST_OPERANDS + 1;

  const Operand* data_;
  std::size_t size_;
};

// Memory that a run may write what it likes into. planq_run() says where it has to be.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// --- Streams and devices -------------------------------------------------------------------------

// Where work goes. There is no default.
struct Stream : planq_stream {
  Stream(const planq_stream& stream) noexcept : planq_stream(stream) {}
  // The calling thread and `threads` - 1 others.
  static Stream host(std::int32_t threads = 1) noexcept { return planq_host_stream(threads); }
  // A cudaStream_t of a device.
  static Stream cuda(void* handle, std::int32_t device) noexcept {
    return planq_cuda_stream(handle, device);
  }

  // Where memory has to be for it.
  Memory memory() const noexcept {
    return backend == PLANQ_CUDA ? Memory::cuda(device) : Memory::host();
  }
};

// What selection knows of a device, which need not be present.
struct Device : planq_device {
  explicit Device(const planq_device& facts) noexcept : planq_device(facts) {}
  // "host", "sm_90", or "cuda:0", which has to be present.
  static Device named(const std::string& name) {
    planq_device facts;
    detail::check(planq_device_named(name.c_str(), &facts));
    return Device(facts);
  }
};

// --- Plans ---------------------------------------------------------------------------------------

namespace detail {

// A number of planq.h's that counts references; 0 is none.
template <planq_code (*kRetain)(std::uint64_t), planq_code (*kRelease)(std::uint64_t)>
class Handle {
 public:
  Handle() noexcept = default;
  explicit Handle(std::uint64_t number) noexcept : number_(number) {}
  Handle(const Handle& other) noexcept : number_(other.number_) {
    if (number_ != 0) kRetain(number_);
  }
  Handle(Handle&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  Handle& operator=(Handle other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Handle() {
    if (number_ != 0) kRelease(number_);
  }
  std::uint64_t number() const noexcept { return number_; }

 private:
  std::uint64_t number_ = 0;
};

// What `call` makes under a number: a T.
template <class T, class Call>
Result<T> made(const Call& call) noexcept {
  std::uint64_t number = 0;
  const planq_code code = call(&number);
  if (code != PLANQ_OK) return Status(code);
  return T(number);
}

}  // namespace detail

// A plan whose operands and workspace are bound. What they name has to stay until the last launch
// has ended.
class Launch {
 public:
  // Takes over a reference.
  explicit Launch(planq_launch number) noexcept : handle_(number) {}

  // Enqueues what was bound on a stream of the plan's device.
  void run(const Stream& stream) const { try_run(stream).check(); }
  Status try_run(const Stream& stream) const noexcept {
    return Status(planq_launch_run(handle_.number(), &stream));
  }

  // The name of the body that runs.
  std::string body() const { return detail::text_of(planq_launch_body, handle_.number()); }
  // The number, for functions of planq.h; the reference stays this object's.
  planq_launch number() const noexcept { return handle_.number(); }

 private:
  detail::Handle<planq_launch_retain, planq_launch_release> handle_;
};

// What an operand has to be.
struct OperandInfo {
  enum class Role {
    kInput = PLANQ_ROLE_INPUT,
    kOutput = PLANQ_ROLE_OUTPUT,
    kInOut = PLANQ_ROLE_INOUT
  };
  enum class Kind {
    kTensor = PLANQ_KIND_TENSOR,
    kList = PLANQ_KIND_LIST,
    kScalar = PLANQ_KIND_SCALAR
  };
  // Of memory that a tensor needs, or a member of a list.
  struct Room {
    Shape shape;
    std::size_t bytes = 0;
  };

  const char* name;   // stays as long as the library
  const char* dtype;  // of the elements, such as "int4"
  Role role;
  Kind kind;
  bool optional;            // the caller may leave it out
  DType storage;            // of the memory: uint8 of 4-bit codes
  std::vector<Room> rooms;  // one; of a list, one for each member

  const Shape& shape() const { return rooms.at(0).shape; }
  std::size_t bytes() const { return rooms.at(0).bytes; }
};

// The extents of a call, in the place of the Dims of a descriptor: {{"m", 7}}.
using Extents = std::vector<planq_extent>;

// A descriptor with the kernel that was chosen for it.
class Plan {
 public:
  // Takes over a reference.
  explicit Plan(planq_plan number) noexcept : handle_(number) {}

  // Chooses and prepares a kernel on the stream's device.
  static Plan select(const Stream& stream, const Descriptor& descriptor,
                     const Preference& preference = {}) {
    return try_select(stream, descriptor, preference).value();
  }
  static Result<Plan> try_select(const Stream& stream, const Descriptor& descriptor,
                                 const Preference& preference = {}) noexcept {
    return detail::made<Plan>([&](planq_plan* plan) {
      return planq_select(&stream, descriptor.json().c_str(), preference.json().c_str(), plan);
    });
  }
  // The same for a device that need not be present. The plan runs nowhere.
  static Plan foresee(const Device& device, const Descriptor& descriptor,
                      const Preference& preference = {}) {
    return try_foresee(device, descriptor, preference).value();
  }
  static Result<Plan> try_foresee(const Device& device, const Descriptor& descriptor,
                                  const Preference& preference = {}) noexcept {
    return detail::made<Plan>([&](planq_plan* plan) {
      return planq_foresee(&device, descriptor.json().c_str(), preference.json().c_str(), plan);
    });
  }
  // Selects again what to_json() recorded, here or in Python, and refuses another plan.
  static Plan from_json(const Stream& stream, const std::string& text) {
    return try_from_json(stream, text).value();
  }
  static Result<Plan> try_from_json(const Stream& stream, const std::string& text) noexcept {
    return detail::made<Plan>(
        [&](planq_plan* plan) { return planq_plan_from_json(&stream, text.c_str(), plan); });
  }

  // Validates the operands and enqueues the operation. It allocates nothing and waits for nothing.
  void run(const Stream& stream, Workspace workspace, Operands operands) const {
    try_run(stream, workspace, operands).check();
  }
  Status try_run(const Stream& stream, Workspace workspace, Operands operands) const noexcept {
    return Status(operands.give([&](const planq_operand* given, std::size_t count) {
      return planq_run(number(), &stream, workspace.data, workspace.bytes, given, count);
    }));
  }
  // Validates operands and workspace once, for many launches.
  Launch bind(Workspace workspace, Operands operands) const {
    return try_bind(workspace, operands).value();
  }
  Result<Launch> try_bind(Workspace workspace, Operands operands) const noexcept {
    return detail::made<Launch>([&](planq_launch* launch) {
      return operands.give([&](const planq_operand* given, std::size_t count) {
        return planq_bind(number(), workspace.data, workspace.bytes, given, count, launch);
      });
    });
  }
  // Whether run() would take these operands.
  Status can_implement(Operands operands) const noexcept {
    return Status(operands.give([&](const planq_operand* given, std::size_t count) {
      return planq_can_implement(number(), given, count);
    }));
  }

  // Bytes of workspace for these extents; with none enough for every extent.
  std::size_t workspace_size(const Extents& extents = {}) const {
    std::size_t bytes = 0;
    detail::check(planq_plan_workspace_size(number(), extents.data(), extents.size(), &bytes));
    return bytes;
  }
  // What each operand has to be for these extents; with none for the largest.
  std::vector<OperandInfo> operands(const Extents& extents = {}) const {
    std::size_t count = 0;
    detail::check(planq_plan_count_operands(number(), &count));
    std::vector<OperandInfo> listed;
    for (std::size_t i = 0; i < count; ++i) listed.push_back(operand_at(i, extents));
    return listed;
  }

  // The SKU that the plan keeps, such as "quantize/host/f32_s8".
  std::string sku() const { return detail::text_of(planq_plan_sku, number()); }
  // In JSON: the plan for from_json(), its promise, the reason of each kernel, the bodies of its
  // SKU.
  std::string to_json() const { return detail::text_of(planq_plan_to_json, number()); }
  std::string guarantee() const { return detail::text_of(planq_plan_guarantee, number()); }
  std::string explain() const { return detail::text_of(planq_plan_explain, number()); }
  std::string bodies(const Extents& extents = {}) const {
    return detail::text_of(planq_plan_bodies, number(), extents.data(), extents.size());
  }
  // The number, for functions of planq.h; the reference stays this object's.
  planq_plan number() const noexcept { return handle_.number(); }

 private:
  OperandInfo operand_at(std::size_t index, const Extents& extents) const {
    planq_operand_info found;
    const auto ask = [&](std::size_t member) {
      detail::check(
          planq_plan_operand(number(), index, member, extents.data(), extents.size(), &found));
      return OperandInfo::Room{Shape(found.shape, static_cast<std::size_t>(found.ndim)),
                               found.bytes};
    };
    const OperandInfo::Room first = ask(0);
    OperandInfo info{found.name,
                     found.dtype,
                     static_cast<OperandInfo::Role>(found.role),
                     static_cast<OperandInfo::Kind>(found.kind),
                     found.optional != 0,
                     stored(found),
                     {}};
    for (std::size_t member = 0; member < found.members; ++member)
      info.rooms.push_back(member == 0 ? first : ask(member));
    return info;
  }
  static DType stored(const planq_operand_info& info) {
    for (const DType& each : dtypes::all)
      if (each == DType{"", info.code, info.bits}) return each;
    return {info.dtype, info.code, info.bits};  // of a later version of the library
  }

  detail::Handle<planq_plan_retain, planq_plan_release> handle_;
};

}  // namespace planq

#endif
