#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "ptx/memory.h"

namespace ptx {
namespace {

// Reserves zeros that take memory only where they are touched.
void* reserve(std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw Fault("the interpreter has no address space for " + std::to_string(bytes) + " bytes");
  return at;
}

enum Readers : u8 { no_reader, one_thread, one_warp, one_block, all_blocks };
constexpr u32 kWarpShift = 5;

bool same_warp(u16 a, u16 b) { return a >> kWarpShift == b >> kWarpShift; }
bool after_barrier(u32 epoch, u32 now) { return epoch >> 16 < now >> 16; }

std::string thread_of(u32 block, u16 thread) { return "thread " + std::to_string(thread) + " of block " + std::to_string(block); }

}  // namespace

struct RaceWatch::Cell {
  u32 launch = 0;  // all else is of an earlier launch unless this is the current one
  u32 write_block = 0, read_block = 0, write_epoch = 0, read_epoch = 0;
  u16 write_thread = 0, read_thread = 0;
  bool is_written = false, is_atomic = false, is_split = false;  // is_split: the word's bytes are watched each by itself
  Readers readers = no_reader;

  // Returns whether an access at `epoch` by a thread comes before everything that `by` does from now on.
  static bool ordered(u32 block, u16 thread, u32 epoch, const Access& by) {
    if (block != by.block) return false;
    if (thread == by.thread) return true;
    return same_warp(thread, by.thread) ? epoch < by.epoch : after_barrier(epoch, by.epoch);
  }
  bool readers_ordered(const Access& by) const {
    switch (readers) {
      case no_reader:
        return true;
      case one_thread:
        return ordered(read_block, read_thread, read_epoch, by);
      case one_warp:
        if (read_block != by.block) return false;
        return same_warp(read_thread, by.thread) ? read_epoch < by.epoch : after_barrier(read_epoch, by.epoch);
      case one_block:
        return read_block == by.block && after_barrier(read_epoch, by.epoch);
      case all_blocks:
        return false;
    }
    return false;
  }
  void add_reader(const Access& by) {
    if (readers_ordered(by)) {
      readers = one_thread, read_block = by.block, read_thread = by.thread, read_epoch = by.epoch;
      return;
    }
    if (read_block != by.block) {
      readers = all_blocks;
    } else if (readers <= one_warp && same_warp(read_thread, by.thread)) {
      readers = one_warp;
    } else if (readers < one_block) {
      readers = one_block;
    }
    read_epoch = std::max(read_epoch, by.epoch);
  }
};

RaceWatch::RaceWatch(std::size_t bytes)
    : bytes_((bytes + 7) / 4 * 4),
      words_(static_cast<Cell*>(reserve(bytes_ / 4 * sizeof(Cell) + 1))),
      single_(static_cast<Cell*>(reserve(bytes_ * sizeof(Cell) + 1))) {}
RaceWatch::~RaceWatch() {
  ::munmap(words_, bytes_ / 4 * sizeof(Cell) + 1);
  ::munmap(single_, bytes_ * sizeof(Cell) + 1);
}

template <bool kWrites>
bool RaceWatch::touch(Cell& cell, const Access& by, u32 launch, std::string& race) {
  if (cell.launch != launch) cell = {}, cell.launch = launch;
  if (cell.is_written && !(cell.is_atomic && by.is_atomic) && !Cell::ordered(cell.write_block, cell.write_thread, cell.write_epoch, by)) {
    race = thread_of(by.block, by.thread) + (kWrites ? " writes" : " reads") + " what " + thread_of(cell.write_block, cell.write_thread) +
           " wrote, and nothing orders them";
    return false;
  }
  if constexpr (kWrites) {
    if (!cell.readers_ordered(by)) {
      race = thread_of(by.block, by.thread) + " writes what " + thread_of(cell.read_block, cell.read_thread) +
             (cell.readers > one_thread ? " and others" : "") + " read, and nothing orders them";
      return false;
    }
    cell.is_written = true, cell.is_atomic = by.is_atomic;
    cell.write_block = by.block, cell.write_thread = by.thread, cell.write_epoch = by.epoch;
    cell.readers = no_reader;
  } else {
    cell.add_reader(by);
  }
  return true;
}

template <bool kWrites>
std::string RaceWatch::access(std::size_t at, std::size_t bytes, const Access& by, u32 launch) {
  std::string race;
  for (const std::size_t end = at + bytes; at < end;) {
    Cell& word = words_[at / 4];
    const std::size_t next = std::min(end, (at / 4 + 1) * 4);
    const bool is_split = word.launch == launch && word.is_split;
    if (next - at == 4 && !is_split) {
      if (!touch<kWrites>(word, by, launch, race)) return race;
    } else {
      if (!is_split) {
        if (word.launch != launch) word = {}, word.launch = launch;
        std::fill_n(single_ + at / 4 * 4, 4, word);
        word.is_split = true;
      }
      for (std::size_t i = at; i < next; ++i) {
        if (!touch<kWrites>(single_[i], by, launch, race)) return race;
      }
    }
    at = next;
  }
  return race;
}
template std::string RaceWatch::access<false>(std::size_t, std::size_t, const Access&, u32);
template std::string RaceWatch::access<true>(std::size_t, std::size_t, const Access&, u32);

WrittenBytes::WrittenBytes(std::size_t bytes) : bytes_(bytes + 64), bits_(static_cast<u64*>(reserve(bytes_ / 8 + 16))) {}
WrittenBytes::~WrittenBytes() { ::munmap(bits_, bytes_ / 8 + 16); }

// Copies on other streams may set neighbouring bits at the same time.
void WrittenBytes::set(std::size_t at, std::size_t bytes, bool written) {
  const std::size_t end = at + bytes;
  while (at < end) {
    const std::size_t next = std::min(end, (at / 64 + 1) * 64), count = next - at;
    const u64 bits = (count == 64 ? ~u64{0} : (u64{1} << count) - 1) << at % 64;
    if (written)
      __atomic_fetch_or(&bits_[at / 64], bits, __ATOMIC_RELAXED);
    else
      __atomic_fetch_and(&bits_[at / 64], ~bits, __ATOMIC_RELAXED);
    at = next;
  }
}

bool WrittenBytes::all(std::size_t at, std::size_t bytes) const {
  const std::size_t end = at + bytes;
  while (at < end) {
    const std::size_t next = std::min(end, (at / 64 + 1) * 64), count = next - at;
    const u64 bits = (count == 64 ? ~u64{0} : (u64{1} << count) - 1) << at % 64;
    if ((__atomic_load_n(&bits_[at / 64], __ATOMIC_RELAXED) & bits) != bits) return false;
    at = next;
  }
  return true;
}

}  // namespace ptx
