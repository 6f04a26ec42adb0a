#include "troika/train/verify_cause.h"

#include <ATen/ATen.h>

#include <fmt/format.h>

#include <functional>

namespace troika {
namespace {

using Coefficients = std::vector<std::vector<double>>;

struct Hypothesis {
  const char* cause;
  std::string detail;
  Coefficients coefficients;
};

class Hypotheses {
 public:
  Hypotheses(const PieceValues& pieces, int lanes) : weights_(pieces.weights), lanes_(lanes) {
    for (const auto& of_rank : weights_) {
      rank_weights_.push_back(0);
      for (const double w : of_rank) rank_weights_.back() += w;
      total_ += rank_weights_.back();
    }
  }

  std::vector<Hypothesis> all() const {
    const auto ranks = static_cast<double>(weights_.size());
    const auto micro_batches = static_cast<double>(weights_[0].size());
    std::vector<Hypothesis> out;
    const auto add = [&](const char* cause, const std::function<double(size_t, size_t)>& coefficient) {
      out.push_back({cause, "", make(coefficient)});
    };
    add("sum_not_mean", [&](size_t, size_t) { return 1.0; });
    add("sum_not_mean", [&](size_t r, size_t) { return over(1, rank_weights_[r]); });
    if (ranks > 1) add("sum_not_mean", [&](size_t, size_t) { return over(ranks, total_); });
    add("unweighted_ragged", [&](size_t r, size_t) { return over(1, ranks * rank_weights_[r]); });
    add("unweighted_ragged", [&](size_t r, size_t) { return over(1, busy_ranks() * rank_weights_[r]); });
    add("unweighted_ragged",
        [&](size_t r, size_t j) { return over(1, ranks * micro_batches * weights_[r][j]); });
    if (micro_batches > 1) {
      add("micro_batch_scale", [&](size_t, size_t) { return over(micro_batches, total_); });
      add("micro_batch_scale", [&](size_t, size_t) { return over(1, micro_batches * total_); });
    }
    // Divided by ranks once more, or by lanes, which share no samples.
    std::vector<double> by{ranks};
    if (lanes_ > 1)
      by.insert(by.end(), {1.0 * lanes_, 1 / (1.0 * lanes_), ranks * lanes_, 1 / (ranks * lanes_)});
    for (const double times : by) {
      if (times != 1) add("sum_not_mean", [&](size_t, size_t) { return over(1, times * total_); });
    }
    for (size_t rank = 0; rank < weights_.size(); ++rank) {
      const std::string of_rank = fmt::format("of data rank {}", rank);
      add_one_off(out, of_rank, rank_weights_[rank], [rank](size_t r, size_t) { return r == rank; });
      const auto only_this = [rank](size_t r, size_t) { return r == rank ? 1.0 : 0.0; };
      for (const double divisor : {total_, rank_weights_[rank]}) {
        out.push_back({"missing_contribution", fmt::format("only what is {} is there", of_rank),
                       make([&](size_t r, size_t j) { return over(only_this(r, j), divisor); })});
      }
      for (size_t piece = 0; weights_[rank].size() > 1 && piece < weights_[rank].size(); ++piece) {
        add_one_off(out, fmt::format("of micro-batch {} {}", piece, of_rank), weights_[rank][piece],
                    [=](size_t r, size_t j) { return r == rank && j == piece; });
      }
    }
    for (size_t piece = 0; ranks > 1 && micro_batches > 1 && piece < weights_[0].size(); ++piece) {
      double weight = 0;
      for (const auto& of_rank : weights_) weight += of_rank[piece];
      add_one_off(out, fmt::format("of micro-batch {}", piece), weight,
                  [piece](size_t, size_t j) { return j == piece; });
    }
    add("missing_contribution", [](size_t, size_t) { return 0.0; });
    out.back().detail = "nothing of it is there";
    return out;
  }

 private:
  static double over(double numerator, double denominator) {
    return denominator > 0 ? numerator / denominator : 0;
  }

  double busy_ranks() const {
    double busy = 0;
    for (const double w : rank_weights_) busy += w > 0;
    return busy;
  }

  Coefficients make(const std::function<double(size_t, size_t)>& coefficient) const {
    Coefficients out;
    for (size_t r = 0; r < weights_.size(); ++r) {
      out.emplace_back();
      for (size_t j = 0; j < weights_[r].size(); ++j) out.back().push_back(coefficient(r, j));
    }
    return out;
  }

  // The part was left out or counted twice; its weight in the divisor was, or was not.
  void add_one_off(std::vector<Hypothesis>& out, const std::string& of_part, double part,
                   const std::function<bool(size_t, size_t)>& is_part) const {
    for (const double divisor : {total_, total_ - part}) {
      out.push_back({"missing_contribution", "what is " + of_part + " is lost",
                     make([&](size_t r, size_t j) { return is_part(r, j) ? 0.0 : over(1, divisor); })});
    }
    for (const double divisor : {total_, total_ + part}) {
      out.push_back({"double_contribution", "what is " + of_part + " counts twice",
                     make([&](size_t r, size_t j) { return over(is_part(r, j) ? 2.0 : 1.0, divisor); })});
    }
  }

  const std::vector<std::vector<double>>& weights_;
  int lanes_;
  std::vector<double> rank_weights_;
  double total_ = 0;
};

}  // namespace

Cause cause_from_pieces(const at::Tensor& got, const PieceValues& pieces, double tolerance, int lanes) {
  const at::Tensor target = got.to(at::kDouble);
  const double largest = target.numel() > 0 ? target.abs().max().item<double>() : 0;
  for (const Hypothesis& hypothesis : Hypotheses(pieces, lanes).all()) {
    at::Tensor predicted = at::zeros_like(target);
    for (size_t r = 0; r < pieces.sums.size(); ++r) {
      for (size_t j = 0; j < pieces.sums[r].size(); ++j) {
        const double c = hypothesis.coefficients[r][j];
        if (c != 0) predicted.add_(pieces.sums[r][j].to(at::kDouble), c);
      }
    }
    const double scale = std::max(largest, predicted.abs().max().item<double>());
    if ((predicted - target).abs().max().item<double>() <= tolerance * scale) {
      return {hypothesis.cause, hypothesis.detail};
    }
  }
  return {};
}

}  // namespace troika
