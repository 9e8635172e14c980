// Handles: the numbers by which C programs hold objects. A handle names a place of a table and a
// turn, which counts the objects that the place has held. So the handle of an object that ended
// never names another.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "bindings/c/errors.h"

namespace planq::c {

// The objects of one kind. References are the caller's; pins are those of calls under way, which
// outlive a reference that another thread gives back meanwhile. It lives as long as the process.
template <class T, std::uint64_t kKind>
class Handles {
  static_assert(kKind > 0 && kKind < 16);
  struct Place {
    std::atomic<std::uint64_t> state{0};  // turn, references, pins
    std::shared_ptr<T> object;
    std::uint32_t next = 0;  // of the places that are free
  };

 public:
  // A pin, for the duration of a call.
  class Pinned {
   public:
    Pinned(Handles& handles, Place& place) : handles_(handles), place_(place) {}
    ~Pinned() { handles_.unpin(place_); }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;

    T& operator*() const { return *place_.object; }
    T* operator->() const { return place_.object.get(); }
    const std::shared_ptr<T>& shared() const { return place_.object; }

   private:
    Handles& handles_;
    Place& place_;
  };

  explicit constexpr Handles(const char* name) : name_(name) {}

  // A number with one reference.
  std::uint64_t add(std::shared_ptr<T> object) {
    std::uint32_t index = 0;
    Place& place = take_place(index);
    place.object = std::move(object);
    const std::uint64_t turn = place.state.load(std::memory_order_relaxed) >> kTurnShift;
    place.state.store(turn << kTurnShift | kReference, std::memory_order_release);
    return kKind << 60 | turn << 32 | index;
  }

  Pinned pin(std::uint64_t handle) {
    Place& place = change(handle, [](std::uint64_t state) {
      return (state & kPins) == kPins ? state : state + kPin;
    });
    return {*this, place};
  }
  void retain(std::uint64_t handle) {
    change(handle, [](std::uint64_t state) {
      return (state & kReferences) == kReferences ? state : state + kReference;
    });
  }
  void release(std::uint64_t handle) {
    Place& place = *find(handle);
    std::uint64_t state = place.state.load(std::memory_order_acquire);
    do {
      if (!is_of(state, handle)) refuse_handle();
    } while (
        !place.state.compare_exchange_weak(state, state - kReference, std::memory_order_acq_rel));
    if (((state - kReference) & (kReferences | kPins)) == 0) end(place);
  }

 private:
  static constexpr int kTurnShift = 36;  // 28 bits, of which 0 is no turn
  static constexpr std::uint64_t kLastTurn = (1u << 28) - 1;
  static constexpr std::uint64_t kPin = 1, kPins = 0xffff;
  static constexpr std::uint64_t kReference = 1 << 16, kReferences = 0xfffffull << 16;
  static constexpr std::uint32_t kPerBlock = 1024, kBlocks = 4096, kNone = 0xffffffff;

  [[noreturn]] void refuse_handle() const {
    refuse(PLANQ_ERROR_HANDLE, std::string(name_) + ": no " + name_ +
                                   " has this number: it ended, or there never was one");
  }

  static bool is_of(std::uint64_t state, std::uint64_t handle) {
    return state >> kTurnShift == (handle >> 32 & kLastTurn) && (state & kReferences) != 0;
  }

  Place* find(std::uint64_t handle) const {
    const auto index = static_cast<std::uint32_t>(handle);
    if (handle >> 60 != kKind || index >= count_.load(std::memory_order_acquire)) refuse_handle();
    return &blocks_[index / kPerBlock].load(std::memory_order_acquire)[index % kPerBlock];
  }

  // Replaces the state of the handle's place by what `next` makes of it. One that `next` leaves as
  // it is has no room for another pin or reference.
  template <class Next>
  Place& change(std::uint64_t handle, const Next& next) {
    Place& place = *find(handle);
    std::uint64_t state = place.state.load(std::memory_order_acquire);
    while (true) {
      if (!is_of(state, handle)) refuse_handle();
      const std::uint64_t changed = next(state);
      if (changed == state) refuse(PLANQ_ERROR_HANDLE, std::string(name_) + ": too many at once");
      if (place.state.compare_exchange_weak(state, changed, std::memory_order_acq_rel))
        return place;
    }
  }

  void unpin(Place& place) {
    const std::uint64_t state = place.state.fetch_sub(kPin, std::memory_order_acq_rel);
    if ((state & kReferences) == 0 && (state & kPins) == kPin) end(place);
  }

  // Nobody can reach the place any more: its turn is over.
  void end(Place& place) {
    const std::shared_ptr<T> object = std::move(place.object);
    const std::uint64_t turn = (place.state.load(std::memory_order_relaxed) >> kTurnShift) + 1;
    if (turn > kLastTurn) return;  // it is never used again
    place.state.store(turn << kTurnShift, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    place.next = free_;
    free_ = index_of(place);
  }

  std::uint32_t index_of(const Place& place) const {
    std::uint32_t block = 0;
    for (;; ++block) {
      const Place* first = blocks_[block].load(std::memory_order_relaxed);
      if (&place >= first && &place < first + kPerBlock)
        return block * kPerBlock + static_cast<std::uint32_t>(&place - first);
    }
  }

  Place& take_place(std::uint32_t& index) {
    const std::lock_guard lock(mutex_);
    index = free_;
    if (index != kNone) {
      Place& place = blocks_[index / kPerBlock].load(std::memory_order_relaxed)[index % kPerBlock];
      free_ = place.next;
      return place;
    }
    index = count_.load(std::memory_order_relaxed);
    if (index == kPerBlock * kBlocks)
      refuse(PLANQ_ERROR_MEMORY, std::string(name_) + ": too many at once");
    std::atomic<Place*>& block = blocks_[index / kPerBlock];
    if (index % kPerBlock == 0) block.store(new Place[kPerBlock], std::memory_order_release);
    Place& place = block.load(std::memory_order_relaxed)[index % kPerBlock];
    place.state.store(1ull << kTurnShift, std::memory_order_relaxed);
    count_.store(index + 1, std::memory_order_release);
    return place;
  }

  const char* name_;
  std::mutex mutex_;
  std::uint32_t free_ = kNone;
  std::atomic<std::uint32_t> count_{0};
  std::array<std::atomic<Place*>, kBlocks> blocks_{};
};

}  // namespace planq::c
