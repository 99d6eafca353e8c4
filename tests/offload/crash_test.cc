// Tests that a store survives a crash. The store's I/O over several generations (versions of its data) is recorded. From any disk image
// that a crash at any instant may leave, the store must find a complete generation, no older than the last one that it had reported
// committed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/offload/support_crash.h"

namespace spillway::offload::crash_test {
namespace {

using test::CrashImages;
using test::Image;
using test::IoLog;
using test::SmallStore;

constexpr u64 kFirst = test::kFirstGeneration;
constexpr auto& kCommitted = test::kCommittedGenerations;

class Crash : public test::CrashTest {
 protected:
  // Returns what is wrong with the recovery from `image`, or an empty text if nothing is.
  std::string objection(const Image& image, const IoLog& log, size_t entries, const StoreDescription& description) const {
    i64 asked = 0, reported = 0;
    for (size_t i = 0; i < entries; ++i) {
      if (log.entries[i].kind == IoLog::Kind::mark) (log.entries[i].mark % 2 == 1 ? asked : reported) = (log.entries[i].mark + 1) / 2;
    }
    for (const test::TemporaryFolder* scratch : {&first_, &second_}) test::undo_setting_aside(scratch->path());
    test::ImageEngine engine(image);
    SmallStore store(engine, description);
    const auto& found = store.store.last_commit();
    if (!found) return reported == 0 ? "" : "nothing was found: " + store.store.why_new();
    for (i64 n = std::max<i64>(reported - 1, 0); n < asked; ++n) {
      if (found->record == "commit " + std::to_string(n) && found->generation == kCommitted[n]) {
        return store.objection(found->generation, kFirst);
      }
    }
    return "found " + found->record + " after the report of " + std::to_string(reported);
  }

  // Counts images, images that do not recover (bad), and bad ones that claim to recover (wrong), and describes the first bad one.
  struct Verdict {
    i64 images = 0, bad = 0, wrong = 0;
    std::string first;
  };
  enum class Disaster { process_death, power_loss };
  Verdict judge(const IoLog& log, Disaster disaster, int samples) const {
    Verdict verdict;
    StoreDescription description = describe();
    if (disaster == Disaster::power_loss) description.boot_id = "the next boot";
    CrashImages images(log, 5, [&](const Image& image, size_t entries) {
      ++verdict.images;
      const std::string what = objection(image, log, entries, description);
      if (what.empty()) return;
      if (!what.starts_with("nothing was found")) ++verdict.wrong;
      if (++verdict.bad == 1) verdict.first = "after entry " + std::to_string(entries) + ": " + what;
    });
    disaster == Disaster::process_death ? images.process_deaths(samples) : images.power_losses(samples);
    return verdict;
  }
};

INSTANTIATE_TEST_SUITE_P(All, Crash, testing::Values(Durability::checkpoint, Durability::step), test::durability_of);

TEST_P(Crash, TheLogIsAllOfTheIo) {
  const IoLog log = record(1);
  Image last;
  CrashImages(log, 1, [&](const Image& image, size_t) { last = image; }).process_deaths(0);
  ASSERT_EQ(last.size(), 2u);
  for (const auto& [path, bytes] : last) {
    std::ifstream in(path, std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(in), {}};
    EXPECT_TRUE(test::same(bytes, std::as_bytes(std::span(file)))) << path;
  }
}

TEST_P(Crash, SomeInstantsRecover) {
  const IoLog log = record(3);
  for (const Disaster disaster : {Disaster::process_death, Disaster::power_loss}) {
    const Verdict verdict = judge(log, disaster, 1);
    EXPECT_GE(verdict.images, 500);
    if (disaster == Disaster::process_death || GetParam() == Durability::step) {
      EXPECT_EQ(verdict.bad, 0) << "of " << verdict.images << ", the first " << verdict.first;
    } else {  // the image holds no version of the data, and the store does not claim that it does
      EXPECT_GT(verdict.bad, 0);
      EXPECT_EQ(verdict.wrong, 0);
    }
  }
}

class CrashRelease : public Crash {
 protected:
  void expect_ten_thousand_to_recover(Disaster disaster) {
    i64 images = 0;
    for (const u32 seed : {1, 2}) {
      const Verdict verdict = judge(record(seed), disaster, 32);
      EXPECT_EQ(verdict.bad, 0) << "of " << verdict.images << ", the first " << verdict.first;
      images += verdict.images;
    }
    EXPECT_GE(images, 10'000);
  }
};

INSTANTIATE_TEST_SUITE_P(All, CrashRelease, testing::Values(Durability::checkpoint, Durability::step), test::durability_of);

TEST_P(CrashRelease, EveryInstantOfAProcessRecovers) { expect_ten_thousand_to_recover(Disaster::process_death); }

class DurableCrashRelease : public CrashRelease {};
INSTANTIATE_TEST_SUITE_P(All, DurableCrashRelease, testing::Values(Durability::step), [](const auto&) { return "step"; });

TEST_P(DurableCrashRelease, EveryPowerLossRecovers) { expect_ten_thousand_to_recover(Disaster::power_loss); }

// Lives as a process until it is killed: it continues from the previous process's last commit, writes one generation (version of the data)
// after another, and reports each commit through a pipe.
[[noreturn]] void live(const StoreDescription& description, int told) {
  try {
    const ChosenEngine chosen = make_io_engine(IoEngineKind::automatic, 16);
    SmallStore store(*chosen.engine, description);
    bool first = !store.store.last_commit();
    for (u64 g = first ? kFirst : store.store.last_commit()->generation + 1;; ++g, first = false) {
      store.write_generation(g, first);
      store.store.commit(g, "");
      if (::write(told, &g, sizeof g) != sizeof g) ::_exit(2);
    }
  } catch (...) {
    ::_exit(1);
  }
}

// Kills a process `ms` milliseconds after its first commit. Returns the last generation (version of the data) that the process reported.
u64 kill_after(int ms, const StoreDescription& description) {
  int told[2];
  if (::pipe(told) != 0) throw std::runtime_error("pipe");
  const pid_t process = ::fork();
  if (process == 0) live(description, told[1]);
  ::close(told[1]);
  u64 last = 0, next = 0;
  if (::read(told[0], &next, sizeof next) == sizeof next) last = next;
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
  while (::read(told[0], &next, sizeof next) == sizeof next) last = next;
  ::close(told[0]);
  return last;
}

TEST(KillRelease, EveryRestartGoesOnFromTheLastReportedGeneration) {
  for (const Durability durability : {Durability::checkpoint, Durability::step}) {
    const test::TemporaryFolder first, second;
    const StoreDescription description = test::small_description({{first.path(), 2}, {second.path(), 1}}, durability);
    u64 before = 0;
    for (int life = 0; life < 10; ++life) {
      const u64 told = kill_after(life * 3, description);
      ASSERT_GT(told, before);  // each process must commit newer versions of the data than the process before it
      const ChosenEngine chosen = make_io_engine(IoEngineKind::automatic, 16);
      SmallStore store(*chosen.engine, description);
      ASSERT_TRUE(store.store.last_commit()) << store.store.why_new();
      before = store.store.last_commit()->generation;
      ASSERT_TRUE(before == told || before == told + 1) << before << " after the report of " << told;
      ASSERT_EQ(store.objection(before, kFirst), "");
    }
  }
}

// Makes faulty stores by changing the log of a correct one. The crash images must reveal the fault.
class FaultyStore : public Crash {};
INSTANTIATE_TEST_SUITE_P(All, FaultyStore, testing::Values(Durability::step), [](const auto&) { return "step"; });

bool writes_superblock(const IoLog& log, const IoLog::Entry& entry) {
  const IoLog::Write& write = log.writes[entry.write];
  return (entry.kind == IoLog::Kind::submitted || entry.kind == IoLog::Kind::completed) && write.offset >= kSuperblockOffset &&
         write.offset < kTablesOffset && std::ssize(write.bytes) == kPageBytes && std::memcmp(write.bytes.data(), kSuperblockMagic, 8) == 0;
}

TEST_P(FaultyStore, ASuperblockBeforeItsDataIsCaught) {
  IoLog log = record(1);
  size_t report = 0;  // index of the log entry after the last report, or after the superblock that was moved there
  for (size_t i = 0; i < log.entries.size(); ++i) {
    if (log.entries[i].kind == IoLog::Kind::mark && log.entries[i].mark % 2 == 0) report = i + 1;
    if (!writes_superblock(log, log.entries[i])) continue;
    const auto begin = log.entries.begin();
    std::rotate(begin + static_cast<i64>(report), begin + static_cast<i64>(i), begin + static_cast<i64>(i) + 1);
    ++report;
  }
  EXPECT_GT(judge(log, Disaster::process_death, 2).bad, 0);
}

TEST_P(FaultyStore, FlushesLeftOutAreCaught) {
  for (const int kept : {0, 1}) {  // planted faults: the log contains no flush, or only the last one of each commit
    IoLog log = record(1);
    std::vector<IoLog::Entry> entries;
    for (size_t i = 0; i < log.entries.size(); ++i) {
      const bool last = i + 1 < log.entries.size() && log.entries[i + 1].kind == IoLog::Kind::mark;
      if (log.entries[i].kind != IoLog::Kind::flushed || (kept == 1 && last)) entries.push_back(log.entries[i]);
    }
    log.entries = entries;
    EXPECT_EQ(judge(log, Disaster::process_death, 0).bad, 0);
    EXPECT_GT(judge(log, Disaster::power_loss, 1).bad, 0) << kept;
  }
}

TEST_P(FaultyStore, DataInTheSlotInUseIsCaught) {
  IoLog log = record(1);
  const i64 tables = table_offset(describe().persistent_tiles, 0), bytes = table_bytes(describe().persistent_tiles);
  for (IoLog::Write& write : log.writes) {  // planted fault: both slots use the same checksum table
    if (write.offset == tables + bytes && write.bytes.size() == static_cast<size_t>(bytes)) write.offset = tables;
  }
  EXPECT_GT(judge(log, Disaster::process_death, 2).bad, 0);
}

}  // namespace
}  // namespace spillway::offload::crash_test
