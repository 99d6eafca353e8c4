#include "device/memory_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace spillway {
namespace {

constexpr i64 kPage = 4096;

}  // namespace

MemoryPool::MemoryPool(std::string name, i64 budget_bytes, std::string help, std::unique_ptr<MemorySource> source)
    : name_(std::move(name)), help_(std::move(help)), budget_bytes_(budget_bytes), source_(std::move(source)) {}

MemoryPool::~MemoryPool() {
  for (auto& [data, entry] : held_) source_->give_back(data, entry.second);
}

Allocation MemoryPool::allocate(i64 bytes, const char* what) {
  require(bytes >= 0, "[memory pool] expected a size of at least 0");
  const i64 mapped = bytes > kUnlimited - kPage ? kUnlimited - kPage + 1 : round_up(bytes, kPage);
  if (mapped == 0) return Allocation(this, nullptr, 0, 0);
  std::lock_guard lock(mutex_);
  if (mapped > budget_bytes_ - used_bytes_) {
    throw Error(ErrorCode::refused,
                fmt::format("[{} memory] {} asked for {}, but {} of the budget of {} are in use:\n{}{}", name_, what, format_bytes(mapped),
                            format_bytes(used_bytes_), format_bytes(budget_bytes_), table_locked(), help_));
  }
  std::byte* data = source_->take(mapped);
  if (!data) {
    throw Error(ErrorCode::io, fmt::format("[{} memory] the system refused {} for {}: {} (errno {})", name_, format_bytes(mapped), what,
                                           std::strerror(errno), errno));
  }
  used_bytes_ += mapped;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  held_.emplace(data, std::pair(std::string(what), mapped));
  return Allocation(this, data, 0, bytes);
}

void MemoryPool::release(std::byte* data, i64, i64) noexcept {
  if (!data) return;
  std::lock_guard lock(mutex_);
  const auto entry = held_.find(data);
  if (entry == held_.end()) return;
  source_->give_back(data, entry->second.second);
  used_bytes_ -= entry->second.second;
  held_.erase(entry);
}

i64 MemoryPool::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_bytes_;
}

i64 MemoryPool::peak_bytes() const {
  std::lock_guard lock(mutex_);
  return peak_bytes_;
}

std::string MemoryPool::table() const {
  std::lock_guard lock(mutex_);
  return table_locked();
}

std::string MemoryPool::table_locked() const {
  std::map<std::string, i64> by_use;
  for (auto& [data, entry] : held_) by_use[entry.first] += entry.second;
  std::vector<std::pair<i64, std::string>> rows;
  for (auto& [what, bytes] : by_use) rows.emplace_back(bytes, what);
  std::sort(rows.rbegin(), rows.rend());
  std::string text;
  for (auto& [bytes, what] : rows) text += fmt::format("  {:<32} {}\n", what, format_bytes(bytes));
  return text;
}

MemoryPool& MemoryPool::heap() {
  static auto* pool = new MemoryPool("heap", kUnlimited);  // the pool is never destroyed, so that it outlives every tensor, static ones too
  return *pool;
}

}  // namespace spillway
