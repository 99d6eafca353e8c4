// Records the I/O of a small store over several generations (versions of its data), with marks that tell what had been reported committed
// at each entry of the log.
#pragma once
#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/offload/support_store.h"
#include "tests/support/crash_images.h"
#include "tests/support/faulty_engine.h"

namespace spillway::test {

constexpr u64 kFirstGeneration = 3;  // number of the version of the data in the first commit
// Lists generations (versions of the data) in the order of their commits. Generation 5 is committed twice, with different records.
constexpr u64 kCommittedGenerations[] = {3, 4, 5, 5, 6, 7};

class CrashTest : public testing::TestWithParam<offload::Durability> {
 protected:
  offload::StoreDescription describe() const { return small_description({{first_ / "store", 2}, {second_ / "store", 1}}, GetParam()); }

  // Empties the scratch folders and creates only the store's folders in them.
  void clear() const {
    for (const TemporaryFolder* scratch : {&first_, &second_}) {
      for (const auto& entry : std::filesystem::directory_iterator(scratch->path())) std::filesystem::remove_all(entry.path());
      std::filesystem::create_directory(*scratch / "store");
    }
  }

  // Records the log. Commit number n is marked 2n + 1 when it is requested and 2n + 2 when it is reported.
  IoLog record(u32 seed) {
    clear();
    FaultyEngine real;
    RecordingEngine engine(real, seed);
    SmallStore store(engine, describe());
    for (i64 n = 0; n < std::ssize(kCommittedGenerations); ++n) {
      const u64 g = kCommittedGenerations[n];
      engine.hold();
      if (n == 0 || g != kCommittedGenerations[n - 1]) store.start_generation(g, n == 0);
      engine.release();
      store.finish();
      engine.mark(2 * n + 1);
      store.store.commit(g, "commit " + std::to_string(n));
      engine.mark(2 * n + 2);
    }
    return engine.log();
  }

  TemporaryFolder first_{fast_folder()}, second_{fast_folder()};
};

inline std::string durability_of(const testing::TestParamInfo<offload::Durability>& test) {
  return test.param == offload::Durability::step ? "step" : "checkpoint";
}

}  // namespace spillway::test
