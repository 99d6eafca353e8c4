#include "parallel/device/gpu_lanes.h"

#include <algorithm>
#include <array>

#include "device/profiler_range.h"
#include "parallel/program/meetings.h"

namespace spillway::parallel {
namespace {

// Returns the name that profilers show for an instruction, such as "Forward 3" with the index of its block or group.
std::string name_of(const Instruction& i) {
  std::string name(to_string(i.op));
  if (i.block != kNone) return name + " " + std::to_string(i.block);
  return i.group == kNone ? name : name + " " + std::to_string(i.group);
}

}  // namespace

GpuLanes::GpuLanes(const Stream& work, Kind only_queued, Kind leaves_on_queue)
    : work_(work), only_queued_(std::move(only_queued)), leaves_on_queue_(std::move(leaves_on_queue)) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const bool others_wait = std::ranges::count(kExchangeLanes, static_cast<Lane>(lane)) > 0;
    queues_.push_back(std::make_unique<GpuQueue>(work.device, others_wait ? Urgency::urgent : Urgency::plain));
  }
}

void GpuLanes::begin(const List& list) {
  if (ended_.empty()) ended_.push_back(std::make_unique<Round>(work_.device));
  rounds_.push_back(std::move(ended_.back()));
  ended_.pop_back();
  Round& r = round();
  r.list = &list;
  while (r.moments.size() < list.size()) r.moments.push_back(std::make_unique<Moment>(work_.device));
  r.begin.record(*queue(Lane::compute));
  r.begin.wait();  // the GPU's times and the CPU's times count from the moment at which this event happens
  r.began = Clock::now();
}

double GpuLanes::perform(const Instruction& i, const std::function<double()>& work) {
  Stream stream = work_;
  stream.queue = queue(i.lane)->handle();
  const StreamScope scope(stream);
  const ProfilerRange range(name_of(i));
  Moment& mine = *round().moments[static_cast<size_t>(&i - round().list->data())];
  mine.queued = only_queued_(i);
  mine.ends_later = mine.queued || leaves_on_queue_(i);
  wait_for_what_comes_before(i, mine);
  return perform_timed(i, mine, work);
}

// Waits for the instructions in `i.after`. A queue reaches its events in order, so it suffices to wait for the last one of them
// on each lane. If `i` itself runs on its queue only, the wait is put on that queue. This also holds for a Fetch with a part on
// the queue, so that the CPU can read from nvme while the GPU memory that it will fill is still in use.
void GpuLanes::wait_for_what_comes_before(const Instruction& i, const Moment& mine) const {
  const GpuQueue& own = *queue(i.lane);
  std::array<const u32*, kLanes> last{};
  for (const u32& before : i.after) {
    const u32*& of_lane = last[static_cast<size_t>((*round().list)[before].lane)];
    if (!of_lane || *of_lane < before) of_lane = &before;
  }
  const bool waits_on_gpu = mine.queued || (mine.ends_later && i.op == Op::Fetch);
  if (waits_on_gpu) last[static_cast<size_t>(i.lane)] = nullptr;
  for (const u32* before : last) {
    if (!before || !round().moments[*before]->ends_later) continue;
    const GpuEvent& end = round().moments[*before]->end;
    waits_on_gpu ? own.wait_for(end) : end.wait();
  }
  if (!mine.ends_later) own.wait();
}

double GpuLanes::perform_timed(const Instruction& i, Moment& mine, const std::function<double()>& work) {
  const GpuQueue& own = *queue(i.lane);
  mine.begin_us = std::chrono::duration<double, std::micro>(Clock::now() - round().began).count();
  if (mine.queued) mine.begin.record(own);
  const double result = work();
  if (mine.ends_later) {
    mine.end.record(own);
  } else {
    own.wait();
  }
  return result;
}

void GpuLanes::wait() {
  for (const auto& queue : queues_) queue->wait();
}

void GpuLanes::end(std::vector<Timing>& timings) {
  wait();
  const Round& r = *rounds_.front();
  for (size_t n = 0; n < timings.size(); ++n) {
    const Moment& moment = *r.moments[n];
    timings[n].start_us = moment.queued ? moment.begin.seconds_since(r.begin) * 1e6 : moment.begin_us;
    if (moment.ends_later) timings[n].end_us = moment.end.seconds_since(r.begin) * 1e6;
  }
  ended_.push_back(std::move(rounds_.front()));
  rounds_.pop_front();
}

}  // namespace spillway::parallel
