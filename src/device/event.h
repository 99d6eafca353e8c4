// Defines Event, the completion of asynchronous work. The function that starts the work returns an Event for it. An error inside
// the work is stored in the Event and rethrown by wait(), so it is never lost. Copies share one state. All members are thread-safe.
#pragma once
#include <exception>
#include <memory>
#include <vector>

namespace spillway {

class Event {
 public:
  /// Creates a pending event; exactly one call of set() or fail() must follow.
  Event();
  /// Returns an event that has already happened.
  static Event done();
  /// The interface to work whose completion is tracked outside Event, for
  /// example by a GPU's driver. ready() and wait() of the Event call it.
  class Awaited {
   public:
    virtual ~Awaited() = default;
    virtual bool ready() const = 0;
    /// Blocks until the work is done and rethrows its errors, as Event::wait() does.
    virtual void wait() const = 0;
  };
  /// Returns an event that forwards ready() and wait() to `awaited`. Do not call set() or fail() on this event.
  static Event of(std::shared_ptr<const Awaited> awaited);
  /// Returns an event that is ready when all `parts` are. Its wait() waits for all parts and then rethrows
  /// the error of the first failed one, in the order given. Do not call set() or fail() on this event.
  static Event all(std::vector<Event> parts);

  void set();
  void fail(std::exception_ptr error);

  bool ready() const;
  /// Blocks until the event has happened and rethrows the error of the work, if any. May be called repeatedly and from several threads.
  void wait() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace spillway
