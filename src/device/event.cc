#include "device/event.h"

#include <condition_variable>
#include <mutex>

namespace spillway {

struct Event::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false;
  std::exception_ptr error;
};

Event::Event() : state_(std::make_shared<State>()) {}

Event Event::done() {
  Event event;
  event.state_->ready = true;
  return event;
}

void Event::set() { fail(nullptr); }

void Event::fail(std::exception_ptr error) {
  {
    std::lock_guard lock(state_->mutex);
    state_->ready = true;
    state_->error = std::move(error);
  }
  state_->changed.notify_all();
}

bool Event::ready() const {
  std::lock_guard lock(state_->mutex);
  return state_->ready;
}

void Event::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->ready; });
  if (state_->error) std::rethrow_exception(state_->error);
}

}  // namespace spillway
