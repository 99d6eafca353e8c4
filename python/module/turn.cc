#include "python/module/turn.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "python/module/pass.h"

namespace spillway::python {
namespace {

// A lock that threads get in the order in which they asked for it.
class Queue {
 public:
  bool try_enter() {
    const std::lock_guard locked(mutex_);
    if (given_ != served_) return false;
    ++given_;
    return true;
  }
  void enter() {
    std::unique_lock locked(mutex_);
    const u64 mine = given_++;
    next_.wait(locked, [&] { return served_ == mine; });
  }
  void leave() {
    const std::lock_guard locked(mutex_);
    if (++served_ != given_) next_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable next_;
  u64 given_ = 0, served_ = 0;  // the numbers of tickets that were given out and that were served
};
// The queue is never destroyed: a thread may compute until the process ends.
Queue& queue() {
  static auto* const one = new Queue();
  return *one;
}

struct Drops {
  std::atomic<bool> any = false;
  std::mutex mutex;
  std::vector<std::function<void()>> waiting;
};
Drops& drops() {
  static auto* const all = new Drops();
  return *all;
}

thread_local int turns = 0;

}  // namespace

void drop_kept() {
  std::vector<std::function<void()>> found;
  if (!drops().any) return;
  {
    const std::lock_guard locked(drops().mutex);
    found.swap(drops().waiting);
    drops().any = false;
  }
  for (const auto& drop : found) call_python(drop);
}

Turn::Turn(bool long_enough) {
  if (Pass::current() != nullptr)
    throw Error(ErrorCode::usage,
                "[forward] expected only operations on tensors in a block's forward, got a call that computes outside of the run, such as "
                "backward(), copy_() or one of a Model or an optimizer: call it before the run, or in a callback");
  if (turns++ > 0) return;
  if (!long_enough && queue().try_enter()) return;
  state_ = PyEval_SaveThread();
  queue().enter();
}

Turn::~Turn() {
  if (--turns > 0) return;
  queue().leave();
  if (state_ != nullptr) take_gil(state_);
  drop_kept();
}

int Turn::depth() { return turns; }

void drop_in_python(std::function<void()> drop) {
  if (!nb::is_alive()) return;
  if (turns == 0 && holds_gil()) return call_python(drop);
  const std::lock_guard locked(drops().mutex);
  drops().waiting.push_back(std::move(drop));
  drops().any = true;
}

}  // namespace spillway::python
