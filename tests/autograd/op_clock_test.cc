// Tests the op clock: the time of a computation counts for the op that is recorded after it, forward and backward. Without a clock nothing
// is counted.
#include "autograd/op_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "autograd/tape.h"

namespace spillway::autograd::op_clock_test {
namespace {

void work(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

Variable slow(const Variable& x, int forward_ms, int backward_ms) {
  work(forward_ms);
  count_flops(100.0 * forward_ms);
  Recorder recorder({x});
  return recorder.output(x.value, [=](Backward& b) {
    work(backward_ms);
    count_flops(1000.0 * backward_ms);
    b.pass(0, b.gradient());
  });
}

TEST(OpClock, GivesEachOpWhatLiesBeforeIt) {
  Tape tape;
  const Variable x = tape.input(zeros({1}, DType::f64));
  OpTimes forward, backward;
  Variable y;
  {
    const OpClock clock(forward);
    y = slow(slow(x, 5, 10), 5, 10);
  }
  EXPECT_EQ(OpClock::current(), nullptr);
  ASSERT_EQ(forward.size(), 1u);
  EXPECT_EQ(forward.at("slow").calls, 2);
  EXPECT_GE(forward.at("slow").seconds, 0.01);
  EXPECT_DOUBLE_EQ(forward.at("slow").flops, 1000);
  {
    const OpClock outer(forward);
    const OpClock clock(backward);
    tape.backward(y);
  }
  EXPECT_EQ(backward.at("slow").calls, 2);
  EXPECT_GE(backward.at("slow").seconds, 0.02);
  EXPECT_DOUBLE_EQ(backward.at("slow").flops, 20000);
  EXPECT_EQ(forward.at("slow").calls, 2) << "the innermost counts";
}

TEST(OpClock, WhatPassesBetweenIsTheNextOps) {
  OpTimes times;
  const OpClock clock(times);
  OpClock::current()->ran("first");
  work(5);
  OpClock::current()->ran("second");
  EXPECT_GE(times.at("second").seconds, 0.005);
}

}  // namespace
}  // namespace spillway::autograd::op_clock_test
