// The tensors of a safetensors file: eight bytes with the length of a JSON header, the header, and
// the bytes that it speaks of. Nothing in the file is taken on trust.
#pragma once

#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <planq.hpp>

namespace engine {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

[[noreturn]] inline void fail(const std::string& why) {
  throw std::runtime_error("safetensors: " + why);
}

struct StoredTensor {
  std::optional<planq::DType> dtype;  // none: of a type that is not for this program
  planq::Shape shape;
  const std::byte* data = nullptr;
};

// What the header says of a tensor.
struct Entry {
  std::string dtype;
  std::vector<std::int64_t> shape, data_offsets;
};

// Reads the header, which is JSON of one form: an object of entries by name, of which
// "__metadata__" has texts alone. Escapes stand for themselves: names are compared, not shown.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  std::map<std::string, Entry> read() {
    std::map<std::string, Entry> entries;
    for_each_member([&](const std::string& name) {
      if (name == "__metadata__") return for_each_member([&](const std::string&) { read_text(); });
      if (!entries.emplace(name, read_entry()).second) refuse();
    });
    if (next() != '\0' || at_ != text_.size()) refuse();
    return entries;
  }

 private:
  [[noreturn]] void refuse() const {
    fail("no JSON of such a header at byte " + std::to_string(at_));
  }
  // The letter behind any blanks; 0 at the end.
  char next() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char letter) {
    if (next() != letter) return false;
    ++at_;
    return true;
  }
  void expect(char letter) {
    if (!take(letter)) refuse();
  }

  template <class Read>
  void for_each_member(const Read& read) {
    expect('{');
    if (take('}')) return;
    do {
      const std::string name = read_text();
      expect(':');
      read(name);
    } while (take(','));
    expect('}');
  }
  Entry read_entry() {
    Entry entry;
    for_each_member([&](const std::string& name) {
      if (name == "dtype")
        entry.dtype = read_text();
      else if (name == "shape")
        entry.shape = read_integers();
      else if (name == "data_offsets")
        entry.data_offsets = read_integers();
      else
        refuse();
    });
    return entry;
  }
  std::string read_text() {
    expect('"');
    const std::size_t first = at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) refuse();
    return std::string(text_.substr(first, at_++ - first));
  }
  std::vector<std::int64_t> read_integers() {
    std::vector<std::int64_t> integers;
    expect('[');
    if (take(']')) return integers;
    do {
      next();
      const char* const last = text_.data() + text_.size();
      const auto [end, error] = std::from_chars(text_.data() + at_, last, integers.emplace_back());
      if (error != std::errc()) refuse();
      at_ = static_cast<std::size_t>(end - text_.data());
    } while (take(','));
    expect(']');
    return integers;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

class Safetensors {
 public:
  explicit Safetensors(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) fail(path + " cannot be opened");
    content_.resize(static_cast<std::size_t>(std::filesystem::file_size(path)));
    file.read(reinterpret_cast<char*>(content_.data()),
              static_cast<std::streamsize>(content_.size()));
    if (!file) fail(path + " cannot be read");
    std::uint64_t header = 0;
    if (content_.size() < sizeof header) fail("it is shorter than its header");
    std::memcpy(&header, content_.data(), sizeof header);
    if (header > content_.size() - sizeof header) fail("it is shorter than its header");
    const std::string_view text(reinterpret_cast<const char*>(content_.data()) + sizeof header,
                                header);
    const std::size_t start = sizeof header + static_cast<std::size_t>(header);
    for (const auto& [name, entry] : HeaderReader(text).read())
      tensors_.emplace(name, stored(name, entry, start));
  }

  const StoredTensor& at(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) fail("no tensor is called " + name);
    return found->second;
  }

 private:
  StoredTensor stored(const std::string& name, const Entry& entry, std::size_t start) const {
    static const std::map<std::string, planq::DType> kTypes = {{"F64", planq::dtypes::float64},
                                                               {"F32", planq::dtypes::float32},
                                                               {"F16", planq::dtypes::float16},
                                                               {"BF16", planq::dtypes::bfloat16}};
    const std::size_t room = content_.size() - start;
    if (entry.data_offsets.size() != 2) fail(name + " has no place");
    const auto first = static_cast<std::uint64_t>(entry.data_offsets[0]);
    const auto last = static_cast<std::uint64_t>(entry.data_offsets[1]);
    if (first > last || last > room) fail(name + " ends beyond the file");
    const auto type = kTypes.find(entry.dtype);
    if (type == kTypes.end()) return {};  // which the program says when it is asked for
    std::uint64_t expected = type->second.bits / 8;
    for (const std::int64_t extent : entry.shape) {
      if (extent < 0) fail(name + " has a negative extent");
      const auto count = static_cast<std::uint64_t>(extent);
      if (count != 0 && expected > UINT64_MAX / count) fail(name + " is too large");
      expected *= count;
    }
    if (expected != last - first) fail(name + " has another size than its shape");
    return {type->second, entry.shape, content_.data() + start + first};
  }

  std::vector<std::byte> content_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace engine
