// Loader produces the batches of a training run, one optimizer step at a time. Its samples (samples.h) are windows of tokens or images;
// images are called windows here too. The windows of all sources are numbered consecutively. In each source the training windows come first
// and the last `validation_fraction` are validation data. The cursor q counts the rows of the run before a step: row b of micro-batch k of
// data-parallel rank r of R is row q + (k·R + r)·B + b of the run. Epochs follow each other; with `shuffled` each has its own seeded
// permutation (base/random.h). A step ends at the end of its epoch: the remaining rows are padded with ignored targets, and the next step
// begins the next epoch. With `drop_last` a step that the epoch cannot fill is skipped. A mixture (mixture.h) has no end: all its steps are
// full, and each of its sources has its own epochs and permutations.
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
  i64 sequence_length = 0, micro_batch_size = 1;  // sequence_length is unused for images
  i64 micro_batches = 1;                          // number of gradient accumulation steps, K
  int rank = 0, ranks = 1;
  bool shuffled = true;
  bool drop_last = false;  // leaves out the rows that do not fill an epoch's last step
  u64 seed = 1337;
  // Sampling weight of each source, above 0, for a mixture. If empty, there is no mixture: every epoch takes all windows of all sources.
  std::vector<double> weights;
  int workers = 1;  // threads that read rows; their number does not change the batches
  // Fraction of each source that is validation data: at least one window of each source that has two. 1 means that every window is
  // validation data.
  double validation_fraction = 0;
};

class Loader {
 public:
  /// `sources` must outlive the loader. Throws Error(usage) if there is no training window (the message names the tokens, the sequence
  /// length and a remedy), if a weight is not positive and finite, if a source of a mixture has no training window, or if `drop_last` is
  /// set and a step is larger than an epoch.
  Loader(const std::vector<std::unique_ptr<TokenSource>>& sources, const LoaderOptions& options);
  Loader(std::unique_ptr<const Samples> samples, const LoaderOptions& options);
  // Number of training windows: one epoch, or for a mixture the total over its sources.
  i64 windows() const;
  i64 validation_windows() const;
  /// Returns the rows of one optimizer step over all ranks, including padded ones: K · R · B.
  i64 windows_per_step() const;
  /// Rows [begin, end) of the run that a step trains on, over all ranks. `begin` is the step's cursor; with drop_last it is the first row
  /// of the next epoch if too few rows are left in this one.
  struct Rows {
    i64 begin, end;
    i64 count() const { return end - begin; }
  };
  Rows rows_of_step(i64 cursor) const;
  /// Returns the cursor of the step that follows the one at `cursor`.
  i64 cursor_after(i64 cursor) const { return rows_of_step(rows_of_step(cursor).end).begin; }
  bool is_mixture() const { return mixture_.has_value(); }
  /// Returns the number of steps in an epoch. Not valid for a mixture.
  i64 steps_per_epoch() const;
  /// Returns the steps in `epochs` epochs: the exact product with the shortest decimal number that prints as `epochs`, rounded up, so that
  /// a step begun by a fraction counts. For a mixture an epoch is windows() rows, and the rows are converted to steps (with drop_last
  /// rounded down, to at least 1). Throws Error(usage) beyond 2^62 steps.
  i64 steps_of_epochs(double epochs) const;
  /// For a mixture, the row from which its weights apply, and the position of each source at that row. This is the beginning of the run
  /// unless set_mixture_start() was called, which must happen before the first step and while no other thread reads.
  const std::optional<MixtureStart>& mixture_start() const { return mixture_start_; }
  void set_mixture_start(MixtureStart start);
  /// For one source of a mixture: the rows of it that were consumed before mixture_start(), those consumed from there to row `rows` of the
  /// run, and its training windows.
  struct Part {
    i64 before, rows, windows;
  };
  std::vector<Part> parts(i64 rows) const;
  /// Returns a text that changes when the data changes. For each source it holds the number of samples and a checksum of some of them,
  /// evenly spread: tokens, targets and positions, or for images the classes. Not valid on the meta device, where nothing is read.
  std::string fingerprint() const;
  /// Returns the step at `cursor`. Its tensors are allocated from the current stream. The result depends on the arguments alone.
  StepBatch step(i64 cursor) const;
  /// Returns this rank's validation micro-batch i, 0 <= i < validation_micro_batches(). Row b holds validation window (i·R + r)·B + b. Rows
  /// after the last window are padded with ignored targets, so that all ranks have the same number of micro-batches.
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
