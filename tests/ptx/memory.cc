#include "ptx/memory.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "ptx/warp.h"

namespace ptx {
namespace {

// All memory that kernels may use, by address.
struct Registry {
  std::mutex mutex;
  std::map<u64, std::shared_ptr<Piece>> pieces;
  std::atomic<u64> changes = 1;

  // Returns the last piece that begins at or before the address, or null. The caller holds the mutex.
  std::shared_ptr<Piece> before(u64 address) {
    const auto next = pieces.upper_bound(address);
    return next == pieces.begin() ? nullptr : std::prev(next)->second;
  }
};
Registry& registry() {
  static auto* const one = new Registry;  // never destroyed: static objects of the program free memory at its end
  return *one;
}

std::atomic<u32> launches = 0;

Access access_of(const Warp& warp, u32 lane, bool is_atomic) {
  const Block& block = *warp.block;
  return {static_cast<u32>(block.number), static_cast<u16>(warp.index * kLanes + lane), block.barriers << 16 | (warp.synced & 0xffff),
          is_atomic};
}

const char* name_of(Space space) { return space == Space::shared ? "shared" : space == Space::local ? "local" : "global"; }

[[noreturn]] void never_written(Space space, u64 address, u32 bytes) {
  throw Fault("a read of " + std::to_string(bytes) + " bytes of " + name_of(space) + " memory at " + hex(address) +
              " that were never written, or by a cp.async that was not waited for");
}

}  // namespace

std::string hex(u64 x) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(x));
  return text;
}

void add_piece(const void* at, std::size_t bytes, bool is_written) {
  const auto begin = reinterpret_cast<u64>(at);
  auto piece = std::make_shared<Piece>(begin, bytes);
  if (is_written) piece->written.set(0, bytes, true);
  const std::lock_guard lock(registry().mutex);
  registry().pieces[begin] = std::move(piece);
  ++registry().changes;
}

void remove_piece(const void* at) {
  const std::lock_guard lock(registry().mutex);
  registry().pieces.erase(reinterpret_cast<u64>(at));
  ++registry().changes;
}

void mark_written(const void* at, std::size_t bytes) {
  const auto address = reinterpret_cast<u64>(at);
  const std::lock_guard lock(registry().mutex);
  const auto piece = registry().before(address);
  if (piece && address < piece->begin + piece->bytes) piece->written.set(address - piece->begin, bytes, true);
}

Memory::Memory(std::size_t shared_bytes, std::size_t local_bytes, u32 threads)
    : shared_(shared_bytes + 16),
      local_(local_bytes * threads + 16),
      local_bytes_(local_bytes),
      shared_written_(shared_bytes),
      local_written_(local_bytes * threads),
      shared_races_(std::make_unique<RaceWatch>(shared_bytes)),
      launch_(++launches) {}

void Memory::begin_block() {
  ++block_;
  shared_written_.set(0, shared_.size(), false);
  local_written_.set(0, local_.size(), false);
}

Piece& Memory::piece_at(u64 address, u32 bytes) {
  const auto holds = [&](const Piece& piece) { return address >= piece.begin && address + bytes <= piece.begin + piece.bytes; };
  if (seen_ != registry().changes.load(std::memory_order_acquire)) {
    recent_ = {};
    seen_ = registry().changes.load(std::memory_order_acquire);
  }
  for (const auto& piece : recent_) {
    if (piece && holds(*piece)) return *piece;
  }
  const std::lock_guard lock(registry().mutex);
  auto piece = registry().before(address);
  const std::string what = "an access of " + std::to_string(bytes) + " bytes of global memory at " + hex(address) + " out of bounds: ";
  constexpr u64 kNear = 1 << 16;
  if (!piece || address >= piece->begin + piece->bytes + kNear) throw Fault(what + "nothing is allocated there");
  if (!holds(*piece)) throw Fault(what + "at byte " + std::to_string(address - piece->begin) + " of " + std::to_string(piece->bytes));
  std::shared_ptr<Piece>& slot = recent_[next_recent_++ % recent_.size()];
  slot = std::move(piece);
  return *slot;
}

u8* Memory::at(const Warp& warp, u32 lane, Space space, u64 address, u32 bytes, Use use) {
  try {
    return checked(warp, lane, space, address, bytes, use);
  } catch (const Fault& fault) {
    throw Fault("lane " + std::to_string(lane) + ": " + fault.what());
  }
}

u8* Memory::checked(const Warp& warp, u32 lane, Space space, u64 address, u32 bytes, Use use) {
  if (space == Space::generic) {
    const u64 window = address & kWindowMask;
    space = window == kSharedWindow  ? Space::shared
            : window == kLocalWindow ? Space::local
            : window == kParamWindow ? Space::param
                                     : Space::global;
    if (space != Space::global) address -= window;
  }
  if (address % bytes != 0)
    throw Fault("a misaligned access of " + std::to_string(bytes) + " bytes of " + name_of(space) + " memory at " + hex(address));
  switch (space) {
    case Space::shared:
      return shared_at(warp, lane, address, bytes, use);
    case Space::local:
      return local_at(warp, lane, address, bytes, use);
    case Space::param: {
      std::vector<u8>& parameters = warp.block->parameters;
      if (address + bytes > parameters.size()) throw Fault("a read of parameters out of bounds, at byte " + std::to_string(address));
      if (use != Use::read) throw Fault("a write of the kernel's parameters");
      return parameters.data() + address;
    }
    default:
      return global_at(warp, lane, address, bytes, use);
  }
}

u8* Memory::shared_at(const Warp& warp, u32 lane, u64 address, u32 bytes, Use use) {
  const std::size_t size = shared_.size() - 16;
  if (address + bytes > size || address > size)
    throw Fault("an access of " + std::to_string(bytes) + " bytes of shared memory out of bounds: at byte " + std::to_string(address) +
                " of " + std::to_string(size));
  const Access by = access_of(warp, lane, use == Use::update);
  if (use != Use::write && !shared_written_.all(address, bytes)) never_written(Space::shared, address, bytes);
  const std::string race =
      use == Use::read ? shared_races_->read(address, bytes, by, block_) : shared_races_->write(address, bytes, by, block_);
  if (!race.empty()) throw Fault("a data race in shared memory at byte " + std::to_string(address) + ": " + race);
  if (use != Use::read) shared_written_.set(address, bytes, true);
  return shared_.data() + address;
}

u8* Memory::local_at(const Warp& warp, u32 lane, u64 address, u32 bytes, Use use) {
  if (address + bytes > local_bytes_ || address > local_bytes_)
    throw Fault("an access of " + std::to_string(bytes) + " bytes of local memory out of bounds: at byte " + std::to_string(address) +
                " of " + std::to_string(local_bytes_));
  const std::size_t at = (std::size_t{warp.index} * kLanes + lane) * local_bytes_ + address;
  if (use != Use::write && !local_written_.all(at, bytes)) never_written(Space::local, address, bytes);
  if (use != Use::read) local_written_.set(at, bytes, true);
  return local_.data() + at;
}

u8* Memory::global_at(const Warp& warp, u32 lane, u64 address, u32 bytes, Use use) {
  Piece& piece = piece_at(address, bytes);
  const std::size_t at = address - piece.begin;
  if (use != Use::write && !piece.written.all(at, bytes)) never_written(Space::global, address, bytes);
  const Access by = access_of(warp, lane, use == Use::update);
  const std::string race = use == Use::read ? piece.races.read(at, bytes, by, launch_) : piece.races.write(at, bytes, by, launch_);
  if (!race.empty()) throw Fault("a data race in global memory at " + hex(address) + ": " + race);
  if (use != Use::read) piece.written.set(at, bytes, true);
  return reinterpret_cast<u8*>(address);
}

void Memory::await(const Warp& warp, u32 lane, u64 address, u32 bytes) {
  static_cast<void>(at(warp, lane, Space::shared, address, bytes, Use::write));
  shared_written_.set(address, bytes, false);
}

void Memory::land(const Warp& warp, u32 lane, u64 address, const u8* from, u32 bytes) {
  std::memcpy(at(warp, lane, Space::shared, address, bytes, Use::write), from, bytes);
}

}  // namespace ptx
