#include "base/error.h"
#include "device/gpu_queue.h"

namespace spillway {

void use_device(Device) {}
CurrentDevice::CurrentDevice(Device) {}
CurrentDevice::~CurrentDevice() = default;
CUstream_st* common_gpu_queue() { return nullptr; }
void wait_for_common_queue(Device) {}
void let_follow_common_queue(Device, CUstream_st*) {}
void wait_for_gpu(Device) {}

GpuQueue::GpuQueue(Device gpu, Urgency) : gpu_(gpu) {
  throw Error(ErrorCode::usage,
              "[" + to_string(gpu_) + "] expected a build with CUDA, got one without: configure and build again with nvcc on PATH");
}
GpuQueue::~GpuQueue() = default;
void GpuQueue::wait() const {}
void GpuQueue::copy(std::byte*, const std::byte*, i64) const {}
void GpuQueue::wait_for(const GpuEvent&) const {}
void GpuQueue::follow(const GpuQueue&) const {}
Event GpuQueue::moment() const { return Event::done(); }
i64 gpu_waits() { return 0; }

GpuEvent::GpuEvent(Device) {}
GpuEvent::~GpuEvent() = default;
void GpuEvent::record(const GpuQueue&) const {}
bool GpuEvent::ready() const { return true; }
void GpuEvent::wait() const {}
double GpuEvent::seconds_since(const GpuEvent&) const { return 0; }

}  // namespace spillway
