// The end of something asynchronous. Whoever starts asynchronous work hands out its Event; an error inside the work travels in it and is
// rethrown at wait(), never lost. Copies share one state. All members are thread-safe.
#pragma once
#include <exception>
#include <memory>
#include <vector>

namespace spillway {

class Event {
 public:
  /// A pending event; exactly one of set() and fail() must follow.
  Event();
  /// An event that has already happened.
  static Event done();
  /// What something else knows of, a GPU's driver for one: asked whenever the event is.
  class Awaited {
   public:
    virtual ~Awaited() = default;
    virtual bool ready() const = 0;
    /// As Event::wait().
    virtual void wait() const = 0;
  };
  /// Neither set() nor fail() it.
  static Event of(std::shared_ptr<const Awaited> awaited);
  /// Ready when all parts are; wait() then rethrows the first failed part's error, in the order given. Neither set() nor fail() it.
  static Event all(std::vector<Event> parts);

  void set();
  void fail(std::exception_ptr error);

  bool ready() const;
  /// Blocks until set; rethrows what the work threw. May be called often and from several threads.
  void wait() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace spillway
