// Holds the events of asynchronous work and waits for them when it is destroyed. So memory is not released while the work still uses it,
// even when an exception unwinds the stack.
#pragma once
#include <vector>

#include "device/event.h"

namespace spillway::parallel {

class Pending {
 public:
  Pending() = default;
  Pending(Pending&&) = default;
  Pending& operator=(Pending&& other) noexcept {
    settle();
    events_ = std::move(other.events_);
    other.events_.clear();
    return *this;
  }
  ~Pending() { settle(); }

  void add(Event event) { events_.push_back(std::move(event)); }
  /// Waits until all the work is done, then rethrows the first error.
  void wait() {
    const std::vector<Event> all = events_;
    settle();
    for (const Event& e : all) e.wait();
  }

 private:
  void settle() noexcept {
    for (const Event& e : events_) {
      try {
        e.wait();
      } catch (...) {  // the error is ignored here, because callers that need the results call wait(), which reports it
      }
    }
    events_.clear();
  }
  std::vector<Event> events_;
};

}  // namespace spillway::parallel
