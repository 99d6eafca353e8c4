#include "parallel/run/stepping.h"

#include "parallel/device/only_queued.h"

namespace spillway::parallel {

double Stepping::step(const Instruction& i) {
  const StreamScope scope(step_.steps == Steps::beside_compute ? work_.streams().step_beside : work_.streams().step);
  const auto gradient = i.in.bytes > 0 ? work_.memory.bytes(i.in) : std::span<std::byte>();
  const UpdateUnderWay& under_way = step_.of(i);
  const double waited_us = work_.stepper.step(work_.plan.layout.buckets[i.bucket], i.tiles, under_way.update, under_way.from, gradient);
  if (leaves_on_queue(i, work_.plan, work_.stepper)) {
    work_.queue(i.lane)->follow(work_.state.queues()->to_gpu);
    work_.queue(i.lane)->follow(work_.state.queues()->to_host);
  }
  return waited_us;
}

void Stepping::land(const Instruction& i) { i.group == kNone ? work_.stepper.drain() : work_.stepper.land(i.group); }

void Stepping::commit(const Instruction& i) {
  work_.stepper.drain();
  work_.state.commit(step_.of(i).from + 1, step_.of(i).record);
}

}  // namespace spillway::parallel
