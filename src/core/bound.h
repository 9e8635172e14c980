// What bind leaves for launch: a chain of steps, each with everything but the stream. `run` wants
// no more of a step than its launch, so a bound that has a stream launches each as it is added and
// keeps none; `plan.bind` keeps them all.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/status.h"

namespace planq {

class Bound {
 public:
  // Keeps what is added, for launch().
  Bound() = default;
  // Launches what is added at once.
  explicit Bound(const Stream& stream) : stream_(&stream) {}

  // The stream that the caller launches its next step on at once; null: it leaves that to add().
  const Stream* now() {
    has_steps_ = has_steps_ || stream_ != nullptr;
    return stream_;
  }

  // Which body runs: the selected one, unless its bind leaves the call to another of the SKU.
  void name_body(std::string_view body) { body_ = body; }
  std::string_view body() const { return body_; }
  // The steps of a part, whose bodies are none of the whole's.
  template <class Fill>
  Status add_part(const Fill& fill) {
    const std::string_view whole = body_;
    const Status status = fill(*this);
    body_ = whole;
    return status;
  }

  // From here on each step waits in its kernel for those that this bound has before it, if it has
  // any. Before it waits it may read what none of them writes: they in turn have waited for all
  // that was launched before this bound.
  void follow() { follows_ = has_steps_; }
  bool follows() const { return follows_; }

  // A step has `Status launch(const Stream&) const`. What it refers to, beside itself, is the
  // plan's or the caller's memory.
  template <class Step>
  Status add(const Step& step) {
    if (const Stream* stream = now()) return step.launch(*stream);
    keep(std::make_unique<Kept<Step>>(step));
    return Status::success();
  }

  // A step that a stream may refuse without having done anything; `fill(bound)` adds what gives the
  // same bits on such a stream.
  template <class Step, class Fill>
  Status add_or(const Step& step, const Fill& fill) {
    if (stream_) {
      const Status status = step.launch(*stream_);
      if (status.refused()) return fill(*this);
      has_steps_ = true;
      return status;
    }
    auto otherwise = std::make_unique<Bound>();
    const Status status = fill(*otherwise);
    keep(std::make_unique<Kept<Either<Step>>>(Either<Step>{step, std::move(otherwise)}));
    return status;
  }

  Status launch(const Stream& stream) const {
    for (const auto& step : steps_)
      if (const Status status = step->launch(stream); !status.ok()) return status;
    return Status::success();
  }

 private:
  struct AnyStep {
    virtual ~AnyStep() = default;
    virtual Status launch(const Stream& stream) const = 0;
  };
  // Aligned for the tensor maps that a kernel may have among its arguments.
  template <class Step>
  struct alignas(64) Kept final : AnyStep {
    explicit Kept(Step given) : step(std::move(given)) {}
    Status launch(const Stream& stream) const override { return step.launch(stream); }
    Step step;
  };
  template <class Step>
  struct Either {
    Step step;
    std::unique_ptr<Bound> otherwise;
    Status launch(const Stream& stream) const {
      const Status status = step.launch(stream);
      return status.refused() ? otherwise->launch(stream) : status;
    }
  };

  void keep(std::unique_ptr<AnyStep> step) {
    steps_.push_back(std::move(step));
    has_steps_ = true;
  }

  const Stream* stream_ = nullptr;
  std::string_view body_;  // the program's
  bool has_steps_ = false, follows_ = false;
  std::vector<std::unique_ptr<AnyStep>> steps_;
};

}  // namespace planq
