#include "parallel/device/only_queued.h"

namespace spillway::parallel {

bool copied_by_gpu(const Instruction& i, const Placement& placement) {
  if (i.what == What::activations) return placement.activations[i.block].tier != Tier::nvme;
  return (i.what == What::weights ? placement.parameters : placement.gradients)[i.group] != Tier::nvme;
}

bool only_queued(const Instruction& i, const Plan& plan, const Stepper& stepper) {
  switch (i.op) {
    case Op::Forward:
    case Op::Backward:
    case Op::BackwardInput:
    case Op::BackwardWeight:
    case Op::Release:
    case Op::Accumulate:
    case Op::AddTied:
    case Op::Reduce:
      return true;
    case Op::Gather:
    case Op::Exchange:
      return plan.gpu_to_gpu;
    case Op::SendActivation:
    case Op::SendGradient:
    case Op::SendTied:
    case Op::ReceiveActivation:
    case Op::ReceiveGradient:
    case Op::ReceiveTied:
      return plan.gpu_to_gpu && i.what != What::weights;
    case Op::Fetch:
    case Op::Evict:
      return copied_by_gpu(i, plan.placement);
    case Op::Step:
      return stepper.only_queues(plan.layout.buckets[i.bucket], i.in.bytes > 0);
    default:
      return false;
  }
}

bool leaves_on_queue(const Instruction& i, const Plan& plan, const Stepper& stepper) {
  if (only_queued(i, plan, stepper)) return false;
  return i.op == Op::Load || (i.op == Op::Step && stepper.leaves_copies(i.group, i.in.bytes > 0)) || i.op == Op::Fetch;
}

}  // namespace spillway::parallel
