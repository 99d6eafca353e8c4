// The loader that yields whole steps of samples (samples.h): windows of tokens, or images, which are called windows here
// too. Several sources are numbered through, each split into training windows (first) and validation windows (the last
// `validation_fraction` of each source). The cursor q counts the run's rows before a step: row b of micro-batch k of
// data-parallel rank r of R is row q + (k·R + r)·B + b of the run, whose epochs follow each other; `shuffled`: each in a seeded permutation
// of its own (base/random.h). A step ends where its epoch does: rows behind the end are padded with ignored targets, and the next step
// begins the next epoch. With `drop_last` no step is begun that the epoch cannot fill. A mixture (mixture.h) has no end: its steps are all
// full, and each of its sources has epochs and permutations of its own.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "data/mixture.h"
#include "data/samples.h"
#include "data/token_source.h"

namespace spillway::data {

struct LoaderOptions {
  i64 sequence_length = 0, micro_batch_size = 1;  // images have no sequence
  i64 micro_batches = 1;                          // gradient accumulation steps K
  int rank = 0, ranks = 1;
  bool shuffled = true;
  bool drop_last = false;  // leaves the rows out that do not fill an epoch's last step
  u64 seed = 1337;
  std::vector<double> weights;     // of each source, above 0: a mixture; none: all windows of all sources, an epoch at a time
  int workers = 1;                 // threads that read rows; whatever their number, the same bits
  double validation_fraction = 0;  // at least one window of each source that has two; 1: every window is held out (validation data)
};

class Loader {
 public:
  /// `sources` must outlive the loader. Errors: Error(usage) when there is not one training window, naming tokens, T and what would help; a
  /// weight that is not above 0 and finite; a source of a mixture without a training window; `drop_last` with steps larger than an epoch.
  Loader(const std::vector<std::unique_ptr<TokenSource>>& sources, const LoaderOptions& options);
  Loader(std::unique_ptr<const Samples> samples, const LoaderOptions& options);
  i64 windows() const;  // training windows (an epoch; of a mixture, as many as its sources have together)
  i64 validation_windows() const;
  /// Rows of one optimizer step over all ranks, padded ones counted: K · R · B.
  i64 windows_per_step() const;
  /// The run's rows [begin, end) that the step at this cursor trains on, over all ranks. `begin` is the cursor, but with drop_last the next
  /// epoch's first row where the epoch has too few left.
  struct Rows {
    i64 begin, end;
    i64 count() const { return end - begin; }
  };
  Rows rows_of_step(i64 cursor) const;
  /// The cursor of the step after it.
  i64 cursor_after(i64 cursor) const { return rows_of_step(rows_of_step(cursor).end).begin; }
  bool is_mixture() const { return mixture_.has_value(); }
  /// Steps of an epoch that begins with a step; not of a mixture.
  i64 steps_per_epoch() const;
  /// Steps of so many epochs, a fraction's begun one counted: the exact product with the decimal number that prints as `epochs`, rounded
  /// up. Of a mixture an epoch is windows() rows, and what counts is the rows (with drop_last rounded down, to at least 1). Error(usage):
  /// beyond 2^62.
  i64 steps_of_epochs(double epochs) const;
  /// Of a mixture, from where on its weights are in force, and where its sources stood there: the run's beginning, unless it was set.
  /// Before the first step, and not while others read.
  const std::optional<MixtureStart>& mixture_start() const { return mixture_start_; }
  void set_mixture_start(MixtureStart start);
  /// Of a mixture, each source's part of the rows from mixture_start() to row `rows` of the run, and its training windows.
  struct Part {
    i64 before, rows, windows;
  };
  std::vector<Part> parts(i64 rows) const;
  /// Of each source how many samples it has, and a checksum of some of them, evenly spread: tokens, targets and positions, of images the
  /// classes. Another text where other data lies at the same place. Not of a loader on the meta device, which reads nothing.
  std::string fingerprint() const;
  /// The step whose cursor is `cursor`; tensors come from the stream in force. A function of its arguments alone.
  StepBatch step(i64 cursor) const;
  /// Validation micro-batch `i` of validation_micro_batches() of this rank: row b is held-out window (i·R + r)·B + b; rows after the last
  /// window are padded with ignored targets, so that all ranks have equally many.
  MicroBatch validation(i64 i) const;
  i64 validation_micro_batches() const;

 private:
  struct Range {
    size_t source;
    i64 first_window, windows;
  };
  struct Window {
    size_t source;
    i64 sample;
  };
  static Window numbered(const std::vector<Range>& ranges, i64 window);
  i64 in_order(RandomKey key, i64 windows, i64 at) const;
  Window window_at(i64 at) const;
  void check_steps() const;
  MicroBatch make_micro_batch(i64 first_sample, const std::function<std::optional<Window>(i64 row)>& window_of_row) const;
  RowTokens fill_row(const std::optional<Window>& window, MicroBatch& batch, i64 row) const;
  std::unique_ptr<const Samples> samples_;
  std::unique_ptr<ThreadPool> workers_;
  LoaderOptions options_;
  std::optional<Mixture> mixture_;
  std::optional<MixtureStart> mixture_start_;
  std::vector<Range> training_, held_out_;
};

}  // namespace spillway::data
