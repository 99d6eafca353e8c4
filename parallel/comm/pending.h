// Asynchronous work on memory that must not be given back before the work is done, also when an error unwinds the stack.
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
  /// Rethrows the first error, after all are done.
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
      } catch (...) {  // whoever needs the result has called wait()
      }
    }
    events_.clear();
  }
  std::vector<Event> events_;
};

}  // namespace spillway::parallel
