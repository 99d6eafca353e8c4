// Tests starts of a run that do not fit a store, or are to begin anew, after a crash and before a start that fits. Such
// starts are also killed at any system call. The start that fits must still find what the crash had left.
#include <fmt/format.h>

#include <functional>

#include "offload/scratch_folder.h"
#include "tests/offload/support_crash.h"
#include "tests/support/kill_at.h"

namespace spillway::offload::other_start_test {
namespace {

using test::CrashImages;
using test::Image;
using test::IoLog;
using test::kFirstGeneration;
using test::SmallStore;

constexpr u64 kOthers = 40;  // number of the version (generation) that the other run commits

struct Way {
  const char* name;
  std::function<void(StoreDescription&)> change;
  bool commits = true;  // false: the other run commits nothing, since otherwise the right start would continue from its commit
};
const Way kWays[] = {
    {"another layout", [](StoreDescription& d) { d.layout_hash = 8; }},
    {"another durability",
     [](StoreDescription& d) { d.durability = d.durability == Durability::step ? Durability::checkpoint : Durability::step; }},
    {"paths in another order", [](StoreDescription& d) { std::swap(d.paths[0], d.paths[1]); }},
    {"the first path alone", [](StoreDescription& d) { d.paths.pop_back(); }},
    {"the second path alone", [](StoreDescription& d) { d.paths.erase(d.paths.begin()); }},
    {"another run", [](StoreDescription& d) { d.run_id = "other"; }},
    {"anew", [](StoreDescription& d) { d.anew = true; }, false},
};

class OtherStart : public test::CrashTest {
 protected:
  void start(const StoreDescription& description, bool commits) {
    SmallStore store(engine_, description);
    if (!commits || store.store.last_commit()) return;
    store.write_generation(kOthers, true);
    store.store.commit(kOthers, "of another");
  }
  // Returns which commit a start continues from, and whether the data of that commit is as it was written.
  std::string found(const StoreDescription& description, u64 first_generation = kFirstGeneration) {
    SmallStore store(engine_, description);
    const std::optional<Commit>& last = store.store.last_commit();
    return last ? fmt::format("{} of {}{}", last->record, last->generation, store.objection(last->generation, first_generation))
                : "nothing";
  }

  // Runs every kind of start that does not fit, and expects that the start that fits then finds the same state as it found before them.
  // Returns 1 if the image contains a commit, and 0 otherwise.
  i64 expect_the_same(const Image& image, const StoreDescription& right, bool commits) {
    const auto put_back = [&] {
      clear();
      test::restore(image);
    };
    put_back();
    const std::string wanted = found(right);
    for (const Way& way : kWays) {
      StoreDescription other = right;
      way.change(other);
      put_back();
      start(other, commits && way.commits);
      EXPECT_EQ(found(right), wanted) << "after " << way.name;
    }
    return wanted == "nothing" ? 0 : 1;
  }

  void expect_nothing_lost(u32 seed, int samples, i64 nth) {
    const IoLog log = record(seed);
    i64 images = 0, held = 0;
    for (const bool power_loss : {false, true}) {
      if (power_loss && GetParam() != Durability::step) continue;
      StoreDescription right = describe();
      if (power_loss) right.boot_id = "the next boot";
      CrashImages all(log, 5, [&](const Image& image, size_t) {
        if (++images % nth == 0 && !HasFailure()) held += expect_the_same(image, right, images / nth % 2 == 0);
      });
      power_loss ? all.power_losses(samples) : all.process_deaths(samples);
    }
    EXPECT_GT(held, images / nth / 2) << "of " << images;
  }

  test::FaultyEngine engine_;
};

INSTANTIATE_TEST_SUITE_P(All, OtherStart, testing::Values(Durability::checkpoint, Durability::step), test::durability_of);

TEST_P(OtherStart, ACrashImageIsAsItWas) { expect_nothing_lost(2, 1, 20); }

using SoakOtherStart = OtherStart;
INSTANTIATE_TEST_SUITE_P(All, SoakOtherStart, testing::Values(Durability::checkpoint, Durability::step), test::durability_of);

TEST_P(SoakOtherStart, EveryCrashImageIsAsItWas) {
  for (const u32 seed : {2, 3}) expect_nothing_lost(seed, 4, 1);
}

// Kills a start before its n-th modifying system call, for every n.
class KilledStartRelease : public OtherStart {
 protected:
  void SetUp() override {
    if (!test::kCanKillAt) GTEST_SKIP() << "x86-64 without sanitizers alone";
  }
  StoreDescription other(const Way& way) const {
    StoreDescription description = describe();
    way.change(description);
    return description;
  }
  void run_right() {
    SmallStore store(engine_, describe());
    for (u64 g = kFirstGeneration; g < kFirstGeneration + 2; ++g) {
      store.write_generation(g, g == kFirstGeneration);
      store.store.commit(g, "right");
    }
  }
  // Runs the start in a process that makes its own I/O engine, since threads do not survive a fork.
  test::End killed_start(int n, const StoreDescription& description) {
    return test::end_of(n, [&] {
      test::FaultyEngine engine;
      Traffic traffic;
      NvmeStore::open_or_create(engine, traffic, description);
    });
  }
  // Kills `start` at each possible point, on what `prepare` leaves, and calls `then` after each death. Returns the number of deaths.
  int for_each_death(const std::function<void()>& prepare, const StoreDescription& start, const std::function<void()>& then) {
    int n = 1;
    for (test::End end = test::End::killed; end == test::End::killed && !HasFailure(); ++n) {
      SCOPED_TRACE(n);
      clear();
      prepare();
      end = killed_start(n, start);
      EXPECT_NE(end, test::End::failed);
      then();
    }
    return n - 2;
  }
};
const std::string kRight = "right of 4", kOther = "of another of 40";

INSTANTIATE_TEST_SUITE_P(All, KilledStartRelease, testing::Values(Durability::checkpoint, Durability::step), test::durability_of);

TEST_P(KilledStartRelease, WhileItSetsAside) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    bool again = GetParam() == Durability::step;  // at every second death, the wrong start runs once more before the right one
    const auto then = [&] {
      again = !again;
      if (again) start(other(way), way.commits);
      EXPECT_EQ(found(describe()), kRight);
      if (!again || !way.commits) return;
      EXPECT_EQ(found(other(way), kOthers), kOther);
    };
    EXPECT_GE(for_each_death([&] { run_right(); }, other(way), then), 10);
  }
}

TEST_P(KilledStartRelease, WhileItBringsBack) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const auto prepare = [&] {
      run_right();
      start(other(way), way.commits);
    };
    const auto then = [&] {
      EXPECT_EQ(found(describe()), kRight);
      if (!way.commits) return;
      EXPECT_EQ(found(other(way), kOthers), kOther);
      EXPECT_EQ(found(describe()), kRight);
    };
    EXPECT_GE(for_each_death(prepare, describe(), then), 10);
  }
}

}  // namespace
}  // namespace spillway::offload::other_start_test
