// Holds the checksums of one blob's tiles, for each slot (room for one generation), with the generation (version of the content) for which
// each was computed. The generation tells a tile that was never written for the requested generation from one that came back corrupted.
// Takes 8 bytes per (tile, slot). Thread-safety: different tiles or slots may be used by different threads at once.
#pragma once
#include <vector>

#include "base/types.h"

namespace spillway::offload {

class TileChecksums {
 public:
  TileChecksums(i64 tiles, int slots) : slots_(slots), stamps_(static_cast<size_t>(tiles * slots)) {}

  i64 tiles() const { return std::ssize(stamps_) / slots_; }
  int slots() const { return slots_; }
  u32 crc(i64 tile, u64 generation) const { return at(tile, generation).crc; }
  void stamp(i64 tile, u64 generation, u32 crc) { stamps_[index(tile, generation)] = {crc, tag(generation)}; }
  /// Returns true if the slot holds exactly this generation (version of the content); only the number's lowest 31 bits are compared.
  bool stamped(i64 tile, u64 generation) const { return at(tile, generation).tag == tag(generation); }
  /// Returns true if the slot holds data that a reader of this generation (version of the content) may use. If there is one slot, its data
  /// serves every later generation.
  bool readable(i64 tile, u64 generation) const { return slots_ == 1 ? at(tile, generation).tag != 0 : stamped(tile, generation); }

 private:
  struct Stamp {
    u32 crc = 0;
    u32 tag = 0;  // lowest 31 bits of the generation's number, with the top bit set; 0 if never stamped
  };
  static u32 tag(u64 generation) { return static_cast<u32>(generation) | 0x80000000u; }
  size_t index(i64 tile, u64 generation) const {
    return static_cast<size_t>(tile) * static_cast<size_t>(slots_) + static_cast<size_t>(generation % static_cast<u64>(slots_));
  }
  const Stamp& at(i64 tile, u64 generation) const { return stamps_[index(tile, generation)]; }

  const int slots_;
  std::vector<Stamp> stamps_;
};

}  // namespace spillway::offload
