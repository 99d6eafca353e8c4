#include "trainer/node/disk_meter.h"

namespace spillway::trainer {

DiskUse& DiskUse::operator+=(const DiskUse& other) {
  read_s += other.read_s;
  write_s += other.write_s;
  either_s += other.either_s;
  read_bytes += other.read_bytes;
  written_bytes += other.written_bytes;
  return *this;
}

DiskUse DiskUse::operator-(const DiskUse& e) const {
  return {read_s - e.read_s, write_s - e.write_s, either_s - e.either_s, read_bytes - e.read_bytes, written_bytes - e.written_bytes};
}

void DiskMeter::pass() {
  const auto now = Clock::now();
  const double passed_s = std::chrono::duration<double>(now - changed_).count();
  changed_ = now;
  if (reads_ > 0) use_.read_s += passed_s;
  if (writes_ > 0) use_.write_s += passed_s;
  if (reads_ + writes_ > 0) use_.either_s += passed_s;
}

i64 DiskMeter::bytes_to_request(const offload::Transfer& transfer) {
  {
    std::lock_guard lock(mutex_);
    pass();
    ++(transfer.write ? writes_ : reads_);
  }
  return next_.bytes_to_request(transfer);
}

i64 DiskMeter::completed(const offload::Transfer& transfer, i64 result) {
  {
    std::lock_guard lock(mutex_);
    pass();
    --(transfer.write ? writes_ : reads_);
    if (result > 0) (transfer.write ? use_.written_bytes : use_.read_bytes) += result;
  }
  return next_.completed(transfer, result);
}

DiskUse DiskMeter::use() {
  std::lock_guard lock(mutex_);
  pass();
  return use_;
}

}  // namespace spillway::trainer
