#include "autograd/op_clock.h"

#include <utility>

namespace spillway::autograd {
namespace {

thread_local OpClock* running = nullptr;

}  // namespace

OpClock::OpClock(OpTimes& times) : times_(times), outer_(std::exchange(running, this)) {}
OpClock::~OpClock() { running = outer_; }
OpClock* OpClock::current() { return running; }

void OpClock::ran(const char* op) {
  const auto now = std::chrono::steady_clock::now();
  OpTime& time = times_.try_emplace(op).first->second;
  time.seconds += std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  time.flops += count_.flops() - std::exchange(flops_, count_.flops());
  ++time.calls;
}

}  // namespace spillway::autograd
