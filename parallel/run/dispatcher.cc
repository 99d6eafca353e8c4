#include "parallel/run/dispatcher.h"

#include "parallel/state/stopwatch.h"

namespace spillway::parallel {

std::vector<Timing> Dispatcher::run(const List& list) {
  Lanes& lanes = *work_.device.lanes;
  lanes.begin(list);
  const auto perform = [&](const Instruction& i) { return lanes.perform(i, [&] { return carry_out(i); }); };
  std::vector<Timing> timings = executor_.run(list, perform, [&](const std::exception_ptr& e) { work_.ranks.give_up(e); });
  lanes.wait();
  work_.ranks.exchange().settle();
  return timings;
}

double Dispatcher::carry_out(const Instruction& i) {
  switch (i.op) {
    case Op::Step:
      return parts_.stepping.step(i);
    case Op::Fetch:
    case Op::Evict:
      return move(i);
    case Op::Gather:
      return microseconds_of([&] { parts_.meetings.gather(i); });
    case Op::Exchange:
      return microseconds_of([&] { parts_.meetings.exchange(i); });
    case Op::SendActivation:
    case Op::SendGradient:
    case Op::SendTied:
      return microseconds_of([&] { parts_.messages.send(i); });
    case Op::ReceiveActivation:
    case Op::ReceiveGradient:
    case Op::ReceiveTied:
      return microseconds_of([&] { parts_.messages.receive(i); });
    case Op::Land:
      return microseconds_of([&] { parts_.stepping.land(i); });
    case Op::Commit:
      return microseconds_of([&] { parts_.stepping.commit(i); });
    default:
      compute(i);
      return 0;
  }
}

// Runs a Fetch or an Evict. If it runs on the lane that computes blocks, it uses all compute threads.
double Dispatcher::move(const Instruction& i) {
  std::optional<StreamScope> all_threads;
  if (i.lane == Lane::compute) all_threads.emplace(work_.streams().compute);
  return i.op == Op::Fetch ? parts_.moves.fetch(i) : parts_.moves.evict(i);
}

void Dispatcher::compute(const Instruction& i) {
  switch (i.op) {
    case Op::Load:
      return parts_.computing.load();
    case Op::Forward:
      return parts_.computing.forward(i);
    case Op::Backward:
    case Op::BackwardInput:
    case Op::BackwardWeight:
      return parts_.computing.backward(i);
    case Op::Release:
      return work_.weights.hide(i.group);
    case Op::Accumulate:
    case Op::AddTied:
      return parts_.computing.add_gradients(i);
    case Op::Reduce:
      return parts_.numbers.reduce(i);
    case Op::AgreeNorm:
      return parts_.numbers.agree(parts_.computing.loss_sum());
    case Op::Publish:
      return work_.weights.publish();
    default:
      return;
  }
}

}  // namespace spillway::parallel
