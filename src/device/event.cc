#include "device/event.h"

#include <condition_variable>
#include <mutex>

namespace spillway {

struct Event::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false;
  std::exception_ptr error;
  // `parts` and `awaited` are set before the event is shared, so threads read them without the mutex.
  std::vector<Event> parts;
  std::shared_ptr<const Awaited> awaited;
};

Event::Event() : state_(std::make_shared<State>()) {}

Event Event::done() {
  Event event;
  event.state_->ready = true;
  return event;
}

Event Event::of(std::shared_ptr<const Awaited> awaited) {
  Event event = done();
  event.state_->awaited = std::move(awaited);
  return event;
}

Event Event::all(std::vector<Event> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  Event event = done();
  event.state_->parts = std::move(parts);
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
  for (const Event& part : state_->parts) {
    if (!part.ready()) return false;
  }
  if (state_->awaited) return state_->awaited->ready();
  std::lock_guard lock(state_->mutex);
  return state_->ready;
}

void Event::wait() const {
  std::exception_ptr first;
  for (const Event& part : state_->parts) {
    try {
      part.wait();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
  if (state_->awaited) return state_->awaited->wait();
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->ready; });
  if (state_->error) std::rethrow_exception(state_->error);
}

}  // namespace spillway
