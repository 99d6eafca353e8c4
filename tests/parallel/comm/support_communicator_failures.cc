// Tests failures in a group of ranks: one rank calls another collective than the rest, does not arrive, leaves
// or gives up. Every rank that needs it must get an Error that says so, in bounded time.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "tests/parallel/comm/support_communicator.h"

namespace spillway::parallel::test {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr double kShort_s = 0.3;
constexpr double kSoon_s = 20;  // a time limit in seconds that a busy machine keeps too; a call that hangs would exceed it

// Expects a call to fail soon with error code `code` and a message that contains `words`.
void expect_failure(const std::function<Event()>& call, ErrorCode code, const std::vector<std::string>& words) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    call().wait();
    ADD_FAILURE() << "expected an error that says \"" << words.front() << "\", got none";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
  }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), kSoon_s);
}

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST_P(CommunicatorFailureOf, CallsThatDisagreeFailEverywhereAndTheGroupGoesOn) {
  GetParam().run([](auto& end) {
    const bool last = end->rank() == end->size() - 1;
    const std::string other = "on rank " + std::to_string(end->size() - 1);
    Bytes values(last ? 16 : 24);
    expect_failure([&] { return end->all_reduce(values, DType::f64, Reduction::sum); }, ErrorCode::bug,
                   {"[all_reduce]", "24 bytes on rank 0", "16 bytes", other});
    expect_failure([&] { return last ? end->barrier() : end->broadcast(values, 0); }, ErrorCode::bug, {"same call", "barrier " + other});
    expect_failure([&] { return end->broadcast(values, last ? 1 : 0); }, ErrorCode::bug, {"root 0", "root 1"});
    expect_failure([&] { return end->all_reduce(values, last ? DType::f64 : DType::f32, Reduction::max); }, ErrorCode::bug, {"f32", "f64"});
    Parts parts(static_cast<size_t>(end->size()) + 1, last ? 8 : 16);
    parts[0] = 0;
    const Bytes mine(end->rank() == 0 ? 16 : 0);
    Bytes all(last ? 8 : 16);
    expect_failure([&] { return end->all_gather(mine, all, parts); }, ErrorCode::bug, {"parts"});
    end->barrier().wait();
  });
}

TEST_P(CommunicatorFailureOf, MessageOfAnotherSizeFailsOnBothSides) {
  GetParam().run([](auto& end) {
    Bytes eight(8), twelve(12);
    const std::vector<std::string> words = {"from rank 0 to rank 1, tag 6", "8 bytes", "12 bytes"};
    if (end->rank() == 0) expect_failure([&] { return end->send(eight, 1, 6); }, ErrorCode::bug, words);
    if (end->rank() == 1) expect_failure([&] { return end->receive(twelve, 0, 6); }, ErrorCode::bug, words);
    end->barrier().wait();
  });
}

TEST_P(CommunicatorFailureOf, WrongArgumentsThrowAtOnce) {
  GetParam().run([](auto& end) {
    alignas(8) std::byte bytes[64] = {};
    const std::span<std::byte> some(bytes);
    const int size = end->size();
    Parts none(static_cast<size_t>(size) + 1, 0), short_of(static_cast<size_t>(size), 0), down = none;
    down[1] = 4;
    const auto expect_bug = [](const std::function<Event()>& call, const std::string& word) {
      try {
        call();
        ADD_FAILURE() << "expected an error with \"" << word << "\"";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::bug);
        EXPECT_THAT(error.what(), HasSubstr(word));
      }
    };
    expect_bug([&] { return end->all_gather(some, some, none); }, "0 bytes in `mine`, got 64");
    expect_bug([&] { return end->all_gather({}, some, none); }, "0 bytes in `all`, got 64");
    expect_bug([&] { return end->all_gather({}, {}, short_of); }, "part boundaries");
    expect_bug([&] { return end->all_gather({}, {}, down); }, "ascending");
    expect_bug([&] { return end->reduce_scatter(some, {}, DType::f32, none); }, "0 bytes in `all`, got 64");
    expect_bug([&] { return end->reduce_scatter({}, some, DType::f32, none); }, "0 bytes in `mine`, got 64");
    expect_bug([&] { return end->reduce_scatter({}, {}, DType::int64, none); }, "expected f32 or f64");
    expect_bug([&] { return end->all_reduce(some, DType::bf16, Reduction::sum); }, "bf16");
    expect_bug([&] { return end->all_reduce(some.subspan(1, 4), DType::f32, Reduction::sum); }, "multiples of the size of");
    expect_bug([&] { return end->all_reduce(some.first(6), DType::f32, Reduction::sum); }, "multiples of the size of");
    expect_bug([&] { return end->broadcast(some, size); }, "expected a rank below");
    expect_bug([&] { return end->broadcast(some, -1); }, "got -1");
    expect_bug([&] { return end->send(some, size, 0); }, "[send]");
    expect_bug([&] { return end->receive(some, -1, 0); }, "[receive]");
    end->barrier().wait();  // the barrier works, since refused calls do not count as collectives
  });
}

TEST_P(CommunicatorFailureOf, RankThatNeverComesIsNamed) {
  GetParam().run(
      [](auto& end) {
        end->barrier().wait();
        if (end->rank() == 1) return sleep(3 * kShort_s);
        float x = 0;
        const auto values = std::as_writable_bytes(std::span(&x, 1));
        expect_failure([&] { return end->all_reduce(values, DType::f32, Reduction::sum); }, ErrorCode::peer,
                       {"[all_reduce]", "rank 1", "within 300 ms", "waited"});
        // Every later call to the group must fail at once.
        expect_failure([&] { return end->barrier(); }, ErrorCode::peer, {"[barrier]", "rank 1"});
        expect_failure([&] { return end->send(values, 1, 0); }, ErrorCode::peer, {"tag 0", "rank 1"});
        EXPECT_THROW(end->split(0), Error);
      },
      kShort_s);
}

TEST_P(CommunicatorFailureOf, MessageThatNeverComesNamesItsSender) {
  GetParam().run(
      [](auto& end) {
        std::byte byte{};
        if (end->rank() == 0) {
          expect_failure([&] { return end->receive({&byte, 1}, 1, 9); }, ErrorCode::peer, {"from rank 1", "tag 9", "within 300 ms"});
        } else {
          sleep(3 * kShort_s);
        }
      },
      kShort_s);
}

// Shows that rank 1, which is later than the time-out, counts as alive because it is active all the while in another group, which has no
// other rank.
TEST_P(CommunicatorFailureOf, WhoIsHeardOfIsAlive) {
  GetParam().run(
      [](auto& end) {
        const auto alone = end->split(end->rank());
        for (int k = 0; k < 16 && end->rank() == 1; ++k) {
          sleep(kShort_s / 8);
          alone->barrier().wait();
        }
        end->barrier().wait();
      },
      kShort_s);
}

// Shows that a rank that has called works_alone() is waited for without a time-out until
// its next call. If the rank is late again after that call, the group fails.
TEST_P(CommunicatorFailureOf, WhoWorksAloneIsWaitedForUntilItCalls) {
  GetParam().run(
      [](auto& end) {
        const auto all = end->split(0);
        if (end->rank() == 1) {
          end->works_alone();
          sleep(3 * kShort_s);
        }
        all->barrier().wait();
        if (end->rank() == 1) return sleep(3 * kShort_s);
        expect_failure([&] { return all->barrier(); }, ErrorCode::peer, {"[barrier]", "rank 1", "within 300 ms"});
      },
      kShort_s);
}

TEST_P(CommunicatorFailureOf, RankThatLeavesFailsThoseWhoWaitAndThoseWhoCome) {
  GetParam().run([](auto& end) {
    end->barrier().wait();
    if (end->rank() == 1) {
      sleep(0.05);
      return end.reset();
    }
    std::byte byte{};
    if (end->rank() > 1) sleep(0.1);
    expect_failure([&] { return end->receive({&byte, 1}, 1, 0); }, ErrorCode::peer, {"rank 1", "closed its communicator"});
    expect_failure([&] { return end->barrier(); }, ErrorCode::peer, {"[barrier]", "rank 1"});
  });
}

// Shows that a collective that all ranks have entered completes before a leaving rank's
// communicator is gone, and that a collective that the leaving rank itself waits for fails.
TEST_P(CommunicatorFailureOf, RankThatLeavesInTheMiddle) {
  GetParam().run([](auto& end) {
    const int size = end->size();
    // moving `more` takes longer than leaving the group
    std::vector<float> values(24'000'000 / static_cast<size_t>(size), 1.0F), more(1'000, 1.0F);
    std::byte byte{};
    const Event whole = end->all_reduce(std::as_writable_bytes(std::span(values)), DType::f32, Reduction::sum);
    if (end->rank() == 0) {
      const Event part = end->all_reduce(std::as_writable_bytes(std::span(more)), DType::f32, Reduction::sum);
      for (int r = 1; r < end->size(); ++r) end->receive({&byte, 1}, r, 0).wait();
      end.reset();
      EXPECT_TRUE(whole.ready());
      expect_failure([&] { return part; }, ErrorCode::peer, {"rank 0"});
    } else {
      end->send({&byte, 1}, 0, 0).wait();
      expect_failure([&] { return end->receive({&byte, 1}, 0, 0); }, ErrorCode::peer, {"rank 0", "closed its communicator"});
    }
    whole.wait();
    EXPECT_EQ(values, std::vector<float>(values.size(), static_cast<float>(size)));
  });
}

TEST_P(CommunicatorFailureOf, AbortReachesWhatIsPendingOnAllRanksAndInGroupsSplitOff) {
  GetParam().run([](auto& end) {
    const auto pair = end->split(0);
    std::byte byte{};
    if (end->rank() == 1) {
      std::byte heard{};
      for (int r = 0; r < end->size(); ++r) {
        if (r != 1) end->receive({&heard, 1}, r, 2).wait();
      }
      end->abort("the disk is full");
      return expect_failure([&] { return end->barrier(); }, ErrorCode::peer, {"rank 1 gave up", "the disk is full"});
    }
    float x = 0;
    const Event sum = end->all_reduce(std::as_writable_bytes(std::span(&x, 1)), DType::f32, Reduction::sum);
    const Event message = end->receive({&byte, 1}, 1, 3), below = pair->barrier();
    end->send({&byte, 1}, 1, 2).wait();
    expect_failure([&] { return sum; }, ErrorCode::peer, {"[all_reduce]", "rank 1 gave up: the disk is full"});
    expect_failure([&] { return message; }, ErrorCode::peer, {"tag 3", "the disk is full"});
    expect_failure([&] { return below; }, ErrorCode::peer, {"[barrier]", "was split", "the disk is full"});
    expect_failure([&] { return end->barrier(); }, ErrorCode::peer, {"the disk is full"});
  });
}

}  // namespace
}  // namespace spillway::parallel::test
