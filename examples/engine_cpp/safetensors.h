// The tensors of a safetensors file: eight bytes with the length of a JSON header, the header, and
// the bytes that it speaks of. Nothing in the file is taken on trust.
#pragma once

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "json.h"

namespace engine {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct StoredTensor {
  std::string dtype;  // as planq names it
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
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
    const Json described = JsonReader::read(text);
    for (const auto& [name, entry] : described.as<Json::Object>())
      if (name != "__metadata__") tensors_.emplace(name, read_entry(name, entry, start));
  }

  const StoredTensor& at(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) fail("no tensor is called " + name);
    return found->second;
  }

 private:
  [[noreturn]] static void fail(const std::string& why) {
    throw std::runtime_error("safetensors: " + why);
  }

  StoredTensor read_entry(const std::string& name, const Json& entry, std::size_t start) const {
    static const std::map<std::string, std::pair<std::string, std::size_t>> kTypes = {
        {"F64", {"float64", 8}},
        {"F32", {"float32", 4}},
        {"F16", {"float16", 2}},
        {"BF16", {"bfloat16", 2}}};
    StoredTensor tensor;
    const auto type = kTypes.find(entry.at("dtype").as<std::string>());
    const auto& offsets = entry.at("data_offsets").as<Json::List>();
    const std::size_t room = content_.size() - start;
    if (offsets.size() != 2) fail(name + " has no place");
    const auto first = static_cast<std::uint64_t>(offsets[0].as<std::int64_t>());
    const auto last = static_cast<std::uint64_t>(offsets[1].as<std::int64_t>());
    if (first > last || last > room) fail(name + " ends beyond the file");
    tensor.data = content_.data() + start + first;
    tensor.bytes = static_cast<std::size_t>(last - first);
    if (type == kTypes.end())
      return tensor;  // not for this program, which says so when it is asked
    tensor.dtype = type->second.first;
    std::uint64_t expected = type->second.second;
    for (const Json& extent : entry.at("shape").as<Json::List>()) {
      tensor.shape.push_back(extent.as<std::int64_t>());
      if (tensor.shape.back() < 0) fail(name + " has a negative extent");
      const auto count = static_cast<std::uint64_t>(tensor.shape.back());
      if (count != 0 && expected > UINT64_MAX / count) fail(name + " is too large");
      expected *= count;
    }
    if (expected != tensor.bytes) fail(name + " has another size than its shape");
    return tensor;
  }

  std::vector<std::byte> content_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace engine
