// Implements what the two I/O engines (io_uring and pread) share. A request is checked and cut into pieces of at most 1 MiB, and
// PieceEngine and Piece handle every answer of the kernel. A short transfer is resumed, an interrupted one retried, and a negative result
// or an unexpected end of file becomes Error(io). Only the engines use this file. A Piece is used by one thread at a time; the pieces of
// one request may be processed by different threads.
#pragma once
#include <deque>
#include <memory>
#include <optional>

#include "offload/io_engine.h"
#include "offload/system_calls.h"

namespace spillway::offload {

constexpr i64 kPieceBytes = kMiB;

/// Holds one request that is in progress. When the request's last piece has ended, its event is set, or fails with the first error.
class Request;

class Piece {
 public:
  Piece() = default;
  Piece(std::shared_ptr<Request> request, i64 begin, i64 bytes);

  /// Returns the transfer that is still to be requested from the kernel.
  Transfer rest() const;
  /// Processes the kernel's answer to rest(): a byte count or a negative errno. Returns true if the piece has ended; otherwise rest() must
  /// be requested again.
  bool absorb(i64 result);
  Priority priority() const;
  /// Ends the piece with an Error(io) that describes `error_number` (an errno).
  void fail(int error_number);

 private:
  bool retry_or_fail(int error_number);
  bool advance(i64 result);

  std::shared_ptr<Request> request_;
  i64 offset_ = 0, bytes_ = 0;  // range of the file that is still to be transferred
  int stalls_ = 0;              // consecutive answers of the kernel without progress
};

/// Holds the pieces that wait to be submitted to the kernel: urgent ones first, those of equal
/// priority in the order of their arrival. Not thread-safe: its owner must lock.
class PieceQueue {
 public:
  void push(Piece piece);
  std::optional<Piece> pop();
  bool empty() const { return urgent_.empty() && normal_.empty(); }

 private:
  std::deque<Piece> urgent_, normal_;
};

/// The base class of the io_uring engine and the pread engine. A PieceEngine checks a request, cuts it into pieces and passes each piece to
/// start().
class PieceEngine : public IoEngine {
 public:
  explicit PieceEngine(SystemCalls& system) : system_(system) {}
  Event submit(const IoRequest& request) final;
  void flush(const ScratchFile& file) final;

 protected:
  SystemCalls& system_;

 private:
  /// Starts the transfer of the piece and returns without waiting for a free slot.
  virtual void start(Piece piece) = 0;
};

/// Makes the io_uring engine. Returns null and sets `refusal` to the errno if the kernel offers no io_uring, or one that is too old.
std::unique_ptr<IoEngine> make_uring_engine(int queue_depth, SystemCalls& system, int& refusal);
std::unique_ptr<IoEngine> make_pread_engine(int queue_depth, SystemCalls& system);

}  // namespace spillway::offload
