#include "trainer/run/step_accounts.h"

#include <cstdlib>

#include "trainer/node/process_memory.h"

namespace spillway::trainer {
namespace {

parallel::TierBytes traffic_of(parallel::Rank& rank) {
  parallel::TierBytes now;
  for (size_t t = 0; t < offload::kTiers; ++t) {
    now.read[t] = rank.state().traffic().read_bytes[t];
    now.written[t] = rank.state().traffic().written_bytes[t];
  }
  now.exchanged = rank.exchanged_bytes();
  now.sent = rank.sent_bytes();
  return now;
}

parallel::TierBytes planned_since(const parallel::TierBytes& before, const parallel::Rank& rank) {
  parallel::TierBytes now = rank.planned_bytes();
  return now -= before;
}

double meeting_s(const parallel::List& list, const std::vector<parallel::Timing>& timings) {
  double us = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const parallel::Op op = list[i].op;
    const bool meets = op == parallel::Op::Gather || op == parallel::Op::Exchange || op == parallel::Op::AgreeNorm;
    us += meets ? timings[i].end_us - timings[i].start_us : 0;
  }
  return us / 1e6;
}

}  // namespace

void StepAccounts::begin() {
  moved_before_ = traffic_of(session_.rank());
  planned_before_ = session_.rank().planned_bytes();
  disk_before_ = session_.disk_use();
}

StepSample StepAccounts::end(double seconds) {
  parallel::Rank& rank = session_.rank();
  const parallel::List &head = *rank.last_head(), &tail = *rank.last_tail();
  StepSample step{.seconds = seconds, .account = parallel::account(head, rank.head_timings())};
  step.moved = traffic_of(rank) -= moved_before_;
  step.planned = planned_since(planned_before_, rank);
  step.account += parallel::account(tail, rank.tail_timings());
  step.disk = session_.disk_use() - disk_before_;
  add_phases(step.phases, head, rank.head_timings(), "head");
  add_phases(step.phases, tail, rank.tail_timings(), "tail");
  add_lanes(step.phases, step.account);
  if (session_.chosen().uses(Tier::nvme)) add_disk(step.phases, step.disk);
  step.meeting_s = meeting_s(head, rank.head_timings()) + meeting_s(tail, rank.tail_timings());
  step.predicted = &session_.prediction().step(rank.last_program(), head, tail);
  moved_ += step.moved;
  planned_ += step.planned;
  audit_.step(step);
  return step;
}

void StepAccounts::settle() {
  parallel::Rank& rank = session_.rank();
  const parallel::TierBytes before = traffic_of(rank), planned_before = rank.planned_bytes();
  rank.settle();
  moved_ += traffic_of(rank) -= before;
  planned_ += planned_since(planned_before, rank);
}

i64 StepAccounts::unplanned_bytes() const {
  parallel::TierBytes off = moved_;
  off -= planned_;
  i64 bytes = std::abs(off.exchanged) + std::abs(off.sent);
  for (size_t t = 0; t < offload::kTiers; ++t) bytes += std::abs(off.read[t]) + std::abs(off.written[t]);
  return bytes;
}

std::vector<AuditRow> StepAccounts::audit_rows() const {
  if (audit_.empty()) return {};
  const i64 nvme_bytes = session_.rank().state().nvme_bytes();
  return audit_.rows({session_.chosen().own_bytes(),
                      {session_.device_pool().peak_bytes(), session_.host_pool().peak_bytes(), nvme_bytes},
                      session_.prediction().process_bytes(),
                      process_memory().peak_bytes});
}

}  // namespace spillway::trainer
