// In the place of src/cuda/mbarrier.cuh.
#pragma once

#include <cstdlib>

#include "block.h"
#include "cuda/reduce.cuh"

namespace planq::cuda {

class Barrier {
 public:
  void init(int arrivals) {
    *this = {};
    expected_ = arrivals;
  }
  void arrive_and_expect(int bytes) {
    bytes_ += bytes;
    arrive();
  }
  void arrive() {
    ++arrived_;
    end_phase();
  }
  void come(int bytes) const {
    bytes_ -= bytes;
    end_phase();
  }
  bool has_ended(int parity) const { return parity_ != parity; }
  std::uint32_t address() const { return 0; }
  void wait(int parity) const {
    while (!has_ended(parity)) emulated::Block::current().give_way();
  }

 private:
  void end_phase() const {
    if (arrived_ != expected_ || bytes_ != 0) return;
    arrived_ = 0;
    parity_ ^= 1;
  }

  int expected_ = 0;
  mutable int arrived_ = 0, bytes_ = 0, parity_ = 0;
};
inline bool is_elected() { return emulated::Block::current().lane() == 0; }
inline void publish_barriers() {}

// A cluster has one block.
inline void cluster_barrier_unordered() {}
inline std::uint32_t address_in_block(std::uint32_t address, int) { return address; }
inline void send_pair(std::uint32_t, float2, std::uint32_t) { std::abort(); }

inline void named_barrier_wait(int name, int threads) {
  emulated::Block::current().wait_for_named(static_cast<unsigned>(name),
                                            static_cast<unsigned>(threads));
}
inline bool named_barrier_any(int name, int threads, bool holds) {
  return emulated::Block::current().any_named(static_cast<unsigned>(name),
                                              static_cast<unsigned>(threads), holds);
}

}  // namespace planq::cuda
