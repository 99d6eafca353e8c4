#include "parallel/device/gpu_lanes.h"

#include "device/profiler_range.h"

namespace spillway::parallel {
namespace {

// "Forward 3": the block, or the group.
std::string name_of(const Instruction& i) {
  std::string name(to_string(i.op));
  if (i.block != kNone) return name + " " + std::to_string(i.block);
  return i.group == kNone ? name : name + " " + std::to_string(i.group);
}

}  // namespace

GpuLanes::GpuLanes(const Stream& work, std::function<bool(const Instruction&)> only_queued)
    : work_(work), only_queued_(std::move(only_queued)), begin_(work.device) {
  for (int lane = 0; lane < kLanes; ++lane) queues_.push_back(std::make_unique<GpuQueue>(work.device));
}

void GpuLanes::begin(const List& list) {
  list_ = &list;
  while (moments_.size() < list.size()) moments_.push_back(std::make_unique<Moment>(work_.device));
  begin_.record(*queue(Lane::compute));
  begin_.wait();
  began_ = Clock::now();
}

double GpuLanes::perform(const Instruction& i, const std::function<double()>& work) {
  Stream stream = work_;
  stream.queue = queue(i.lane)->handle();
  const StreamScope scope(stream);
  const ProfilerRange range(name_of(i));
  const bool queued = only_queued_(i);
  wait_for_what_comes_before(i, queued);
  return perform_timed(i, queued, work);
}

void GpuLanes::wait_for_what_comes_before(const Instruction& i, bool queued) const {
  const GpuQueue& own = *queue(i.lane);
  for (const u32 before : i.after) {
    const Moment& moment = *moments_[before];
    if (!moment.queued || (*list_)[before].lane == i.lane) continue;
    if (queued) {
      own.wait_for(moment.end);
    } else {
      moment.end.wait();
    }
  }
  if (!queued) own.wait();
}

double GpuLanes::perform_timed(const Instruction& i, bool queued, const std::function<double()>& work) {
  const GpuQueue& own = *queue(i.lane);
  Moment& mine = *moments_[static_cast<size_t>(&i - list_->data())];
  mine.queued = queued;
  mine.begin_us = std::chrono::duration<double, std::micro>(Clock::now() - began_).count();
  if (queued) mine.begin.record(own);
  const double result = work();
  if (queued) {
    mine.end.record(own);
  } else {
    own.wait();
  }
  return result;
}

void GpuLanes::end(std::vector<Timing>& timings) {
  for (const auto& queue : queues_) queue->wait();
  for (size_t n = 0; n < timings.size(); ++n) {
    const Moment& moment = *moments_[n];
    timings[n].start_us = moment.queued ? moment.begin.seconds_since(begin_) * 1e6 : moment.begin_us;
    if (moment.queued) timings[n].end_us = moment.end.seconds_since(begin_) * 1e6;
  }
}

}  // namespace spillway::parallel
