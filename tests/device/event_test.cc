#include "device/event.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace spillway::event_test {
namespace {

TEST(Event, DoneIsReady) {
  const Event event = Event::done();
  EXPECT_TRUE(event.ready());
  event.wait();
}

TEST(Event, WaitSeesWhatWasWrittenBeforeSet) {
  Event event;
  EXPECT_FALSE(event.ready());
  int value = 0;  // not atomic, so that ThreadSanitizer reports a race if set() does not order the accesses
  std::thread worker([&value, copy = event]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    value = 42;
    copy.set();
  });
  event.wait();
  EXPECT_EQ(value, 42);
  EXPECT_TRUE(event.ready());
  worker.join();
}

TEST(Event, AnErrorIsRethrownToEveryWaiterEveryTime) {
  Event event;
  std::atomic<int> caught{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&caught, event] {
      for (int again = 0; again < 2; ++again) {
        try {
          event.wait();
        } catch (const Error& e) {
          if (e.code() == ErrorCode::io && std::string(e.what()) == "the disk died") ++caught;
        }
      }
    });
  }
  event.fail(std::make_exception_ptr(Error(ErrorCode::io, "the disk died")));
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(caught, 8);
  EXPECT_TRUE(event.ready());
}

TEST(Event, AllIsReadyWithItsLastPartAndFailsWithTheFirstFailedOne) {
  std::vector<Event> parts(3);
  const Event all = Event::all(parts);
  EXPECT_TRUE(Event::all({}).ready());
  parts[2].fail(std::make_exception_ptr(Error(ErrorCode::io, "third")));
  parts[1].fail(std::make_exception_ptr(Error(ErrorCode::io, "second")));
  EXPECT_FALSE(all.ready());
  std::thread last([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    parts[0].set();
  });
  try {
    all.wait();
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "second");
    EXPECT_TRUE(parts[0].ready());
  }
  EXPECT_TRUE(all.ready());
  last.join();
}

TEST(Event, CopiesShareOneState) {
  Event first;
  const Event second = first;
  first.set();
  EXPECT_TRUE(second.ready());
}

}  // namespace
}  // namespace spillway::event_test
