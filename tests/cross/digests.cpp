// digests FILE: runs the cases that cross/check.py wrote to a file, and prints the SHA-256 of what
// each writes. It is compiled for other processors, so it needs planq.hpp alone.
#include <cstdio>
#include <deque>
#include <exception>
#include <fstream>
#include <map>
#include <planq.hpp>
#include <string>
#include <vector>

#include "memory.h"
#include "sha256.h"

namespace {

// Nothing that a kernel may leave: a byte that it does not write changes the digest.
constexpr int kPoison = 0xA5;

using Bytes = std::vector<std::byte>;

struct Case {
  std::string id, descriptor;
  std::map<std::string, Bytes> given;  // inputs and what is updated, by tensor
};

// A line each: the name, the descriptor, the number of tensors. For each tensor a line with its
// name and size, and its bytes.
class Cases {
 public:
  explicit Cases(const char* path) : file_(path, std::ios::binary) {
    if (!file_) throw std::runtime_error(std::string(path) + " cannot be read");
    file_.exceptions(std::ios::failbit | std::ios::badbit);
  }

  bool ended() { return file_.peek() == std::ifstream::traits_type::eof(); }
  Case next() {
    Case read;
    std::getline(file_, read.id);
    std::getline(file_, read.descriptor);
    for (std::size_t left = number(); left > 0; --left) {
      std::string name;
      file_ >> name;
      Bytes bytes(number());
      file_.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      read.given.emplace(std::move(name), std::move(bytes));
    }
    return read;
  }

 private:
  // A number and the end of its line.
  std::size_t number() {
    std::size_t value = 0;
    file_ >> value;
    file_.ignore();
    return value;
  }

  std::ifstream file_;
};

// Memory for every tensor of a plan, with what the case gives.
class Operands {
 public:
  Operands(const planq::Plan& plan, const Case& given) {
    for (const planq::OperandInfo& info : plan.operands()) {
      std::vector<planq::Tensor> tensors;
      const bool is_list = info.kind == planq::OperandInfo::Kind::kList;
      for (std::size_t i = 0; i < info.rooms.size(); ++i) {
        std::string name = info.name;
        if (is_list) name.append("[").append(std::to_string(i)).append("]");
        tensors.push_back(add(info, info.rooms[i], name, given));
      }
      if (is_list)
        operands_.emplace_back(info.name, lists_.emplace_back(std::move(tensors)));
      else
        operands_.emplace_back(info.name, tensors.front());
    }
  }
  const std::vector<planq::Operand>& all() const { return operands_; }

  // Over the bytes of what was written, in the order of the names.
  std::string digest() const {
    Bytes all;
    for (const auto& [name, memory] : written_) {
      const Bytes bytes = memory->download();
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return engine::Sha256::of(all);
  }

 private:
  planq::Tensor add(const planq::OperandInfo& info, const planq::OperandInfo::Room& room,
                    const std::string& name, const Case& given) {
    engine::Memory& memory = memories_.emplace_back(room.bytes, false);
    if (info.role == planq::OperandInfo::Role::kOutput) {
      std::memset(memory.data(), kPoison, room.bytes);
    } else {
      const Bytes& bytes = given.given.at(name);
      if (bytes.size() != room.bytes) throw std::runtime_error(name + " has another size");
      memory.upload(bytes.data());
    }
    if (info.role != planq::OperandInfo::Role::kInput) written_.emplace(name, &memory);
    return planq::Tensor(memory.data(), info.storage, room.shape);
  }

  std::deque<engine::Memory> memories_;
  std::deque<planq::TensorList> lists_;
  std::vector<planq::Operand> operands_;
  std::map<std::string, const engine::Memory*> written_;
};

std::string run(const Case& given, const planq::Stream& stream) {
  const auto plan = planq::Plan::select(stream, planq::Descriptor::from_json(given.descriptor),
                                        planq::Preference().determinism("bit_exact").max_ulp(0));
  const Operands operands(plan, given);
  const engine::Memory workspace(plan.workspace_size(), false);
  std::memset(workspace.data(), kPoison, workspace.bytes());
  plan.run(stream, {workspace.data(), workspace.bytes()}, operands.all());
  return operands.digest();
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "usage: digests FILE\n");
    return 2;
  }
  std::string id = words[1];
  try {
    const auto stream = planq::Stream::host(2);
    for (Cases cases(words[1]); !cases.ended();) {
      const Case given = cases.next();
      id = given.id;
      std::printf("%s  %s\n", run(given, stream).c_str(), id.c_str());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digests: %s: %s\n", id.c_str(), error.what());
    return 1;
  }
  return 0;
}
