// Memory as kernels see it: what is allocated, what was written, and which threads use it without an order.
#pragma once
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ptx/program.h"
#include "ptx/types.h"

namespace ptx {

struct Block;
struct Warp;

/// A fault of a kernel. Its text says what, and the caller adds where.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};
std::string hex(u64 x);

/// Who accesses memory: the thread, and what orders it to others. Accesses of different threads are ordered by a barrier of their block
/// or a bar.warp.sync of their warp between them, never across blocks.
struct Access {
  u32 block = 0;
  u16 thread = 0;
  u32 epoch = 0;  // barriers of the block in the upper half, bar.warp.sync of the warp in the lower
  bool is_atomic = false;
};

/// Watches the words of a piece of memory for data races within one launch: at least one of two threads writes, and nothing orders
/// them. Words of which only parts are accessed are watched byte by byte.
class RaceWatch {
 public:
  explicit RaceWatch(std::size_t bytes);
  ~RaceWatch();
  RaceWatch(const RaceWatch&) = delete;
  RaceWatch& operator=(const RaceWatch&) = delete;
  /// Returns an empty string, or with whom the access of `bytes` bytes at offset `at` races. `launch` tells launches (for shared memory:
  /// blocks) apart, since what earlier ones did is no race.
  std::string read(std::size_t at, std::size_t bytes, const Access& by, u32 launch) { return access<false>(at, bytes, by, launch); }
  std::string write(std::size_t at, std::size_t bytes, const Access& by, u32 launch) { return access<true>(at, bytes, by, launch); }

 private:
  struct Cell;
  template <bool kWrites>
  std::string access(std::size_t at, std::size_t bytes, const Access& by, u32 launch);
  template <bool kWrites>
  static bool touch(Cell& cell, const Access& by, u32 launch, std::string& race);

  std::size_t bytes_;
  Cell *words_ = nullptr, *single_ = nullptr;
};

/// Knows for each byte whether it was written.
class WrittenBytes {
 public:
  explicit WrittenBytes(std::size_t bytes);
  ~WrittenBytes();
  WrittenBytes(const WrittenBytes&) = delete;
  WrittenBytes& operator=(const WrittenBytes&) = delete;
  void set(std::size_t at, std::size_t bytes, bool written);
  bool all(std::size_t at, std::size_t bytes) const;

 private:
  std::size_t bytes_;
  u64* bits_ = nullptr;
};

/// A piece of memory that a kernel may use.
struct Piece {
  u64 begin = 0;
  std::size_t bytes = 0;
  WrittenBytes written;
  RaceWatch races;
  Piece(u64 at, std::size_t size) : begin(at), bytes(size), written(size), races(size) {}
};

/// Registers memory, which may be the host's, as usable by kernels. `is_written`: reading it before a kernel or copy has written is no
/// fault.
void add_piece(const void* at, std::size_t bytes, bool is_written);
void remove_piece(const void* at);
/// Tells that a copy or a library has written memory.
void mark_written(const void* at, std::size_t bytes);

/// The memory of one launch: global memory, and the shared and local memory of the block that runs.
class Memory {
 public:
  Memory(std::size_t shared_bytes, std::size_t local_bytes, u32 threads);
  void begin_block();

  enum class Use : u8 { read, write, update };
  /// Returns where `bytes` bytes at the address are. Throws Fault if they are not the kernel's, not aligned, never written, or raced for.
  u8* at(const Warp& warp, u32 lane, Space space, u64 address, u32 bytes, Use use);
  /// Marks shared memory that a cp.async will write: nobody may read it before.
  void await(const Warp& warp, u32 lane, u64 address, u32 bytes);
  /// Writes what a cp.async copied.
  void land(const Warp& warp, u32 lane, u64 address, const u8* from, u32 bytes);

 private:
  u8* checked(const Warp& warp, u32 lane, Space space, u64 address, u32 bytes, Use use);
  u8* shared_at(const Warp& warp, u32 lane, u64 address, u32 bytes, Use use);
  u8* local_at(const Warp& warp, u32 lane, u64 address, u32 bytes, Use use);
  u8* global_at(const Warp& warp, u32 lane, u64 address, u32 bytes, Use use);
  Piece& piece_at(u64 address, u32 bytes);

  std::vector<u8> shared_, local_;
  std::size_t local_bytes_;
  WrittenBytes shared_written_, local_written_;
  std::unique_ptr<RaceWatch> shared_races_;
  u32 launch_, block_ = 0;
  u64 seen_ = 0;  // the state of the registry in which recent_ was found
  std::array<std::shared_ptr<Piece>, 8> recent_;
  u32 next_recent_ = 0;
};

}  // namespace ptx
