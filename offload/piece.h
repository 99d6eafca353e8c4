// What the engines have in common: a request is checked, cut into pieces of at most 1 MiB, and every answer of the kernel for a piece is
// digested in one place: resumed when short, retried when interrupted, an Error(io) when negative or at an unexpected end of file. Only the
// engines call this. A Piece is used by one thread at a time; the pieces of one request may be at work in different threads.
#pragma once
#include <deque>
#include <memory>
#include <optional>

#include "offload/io_engine.h"
#include "offload/system_calls.h"

namespace spillway::offload {

constexpr i64 kPieceBytes = kMiB;

/// One request in the works; its event is set, or fails with the first error, when the last of its pieces is over.
class Request;

class Piece {
 public:
  Piece() = default;
  Piece(std::shared_ptr<Request> request, i64 begin, i64 bytes);

  /// What is still to be asked of the kernel.
  Transfer rest() const;
  /// Digests the kernel's answer to rest(): a count or a negative errno. True when the piece is over; else rest() is to be asked again.
  bool absorb(i64 result);
  Priority priority() const;
  /// Ends the piece with the error that `error_number` means.
  void fail(int error_number);

 private:
  bool retry_or_fail(int error_number);
  bool advance(i64 result);

  std::shared_ptr<Request> request_;
  i64 offset_ = 0, bytes_ = 0;  // left to do
  int stalls_ = 0;              // answers without progress in a row
};

/// Pieces that wait for the kernel: urgent ones first, each kind in order. Guarded by its owner.
class PieceQueue {
 public:
  void push(Piece piece);
  std::optional<Piece> pop();
  bool empty() const { return urgent_.empty() && normal_.empty(); }

 private:
  std::deque<Piece> urgent_, normal_;
};

/// Checks, cuts and hands each piece to start().
class PieceEngine : public IoEngine {
 public:
  explicit PieceEngine(SystemCalls& system) : system_(system) {}
  Event submit(const IoRequest& request) final;
  void flush(const ScratchFile& file) final;

 protected:
  SystemCalls& system_;

 private:
  /// Takes the piece in without waiting for room.
  virtual void start(Piece piece) = 0;
};

/// Null with `refusal` = errno when the kernel offers no (or too old an) io_uring here.
std::unique_ptr<IoEngine> make_uring_engine(int queue_depth, SystemCalls& system, int& refusal);
std::unique_ptr<IoEngine> make_pread_engine(int queue_depth, SystemCalls& system);

}  // namespace spillway::offload
