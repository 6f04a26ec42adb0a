#include "troika/parallel/tensor/layers.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>

#include "troika/parallel/tensor/peer_functions.h"
#include "troika/parallel/tensor/split_linear.h"
#include "troika/parallel/tensor/torch_rules.h"

namespace troika {
namespace {

constexpr char kColumns[] = "columns", kRows[] = "rows", kVocabulary[] = "vocabulary";

std::vector<SplitWay> only(std::vector<SplitWay> ways, const std::string& name, bool slice_in) {
  std::erase_if(ways, [&](const SplitWay& w) { return w.name != name || w.in.is_whole() == slice_in; });
  return ways;
}

}  // namespace

// The one that takes whole inputs by rows stands before the one by slices: within a user's own forward it is
// the one that fits, and moves as little as columns put together again would.
std::vector<SplitWay> SplitProduct::ways(int64_t in, int64_t out, bool bias, int ranks) {
  std::vector<SplitWay> ways;
  if (out >= ranks) {
    SplitWay columns{kColumns, {}, {-1, out}, {{"weight", {0, out}}}, in, in};
    if (bias) columns.cuts.push_back({"bias", {0, out}});
    ways.push_back(columns);
  }
  if (in >= ranks) {
    const int64_t longest = share({0, in}, ranks, 0).size();
    ways.push_back({kRows, {}, {}, {{"weight", {1, in}}}, out + longest, longest});
    ways.push_back({kRows, {-1, in}, {}, {{"weight", {1, in}}}, out, 0});
  }
  return ways;
}

void SplitProduct::split(const SplitWay& way, TensorAxis& axis) {
  axis_ = &axis;
  by_rows_ = way.name == kRows;
  takes_whole_ = way.in.is_whole();
  out_ = way.out;
}

at::Tensor SplitProduct::operator()(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias) const {
  if (axis_ == nullptr) return at::linear(x, weight, bias);
  if (!by_rows_) return linear_by_columns(x, weight, bias, *axis_);
  return linear_by_rows(takes_whole_ ? take_slice(x, -1, *axis_) : x, weight, bias, *axis_);
}

std::vector<SplitWay> LinearImpl::product_ways(int ranks) const { return linear_ways(*this, ranks); }

// What a derived class does besides may need the whole output.
std::vector<SplitWay> LinearImpl::ways(int ranks) const {
  const bool is_derived = typeid(*this) != typeid(LinearImpl);
  return is_derived ? only_whole(product_ways(ranks)) : product_ways(ranks);
}

std::vector<SplitWay> ColumnLinearImpl::ways(int ranks) const {
  return only(product_ways(ranks), kColumns, false);
}

std::vector<SplitWay> RowLinearImpl::ways(int ranks) const { return only(product_ways(ranks), kRows, true); }

std::vector<SplitWay> SplitTable::ways(int64_t values, int64_t width, int ranks) {
  std::vector<SplitWay> ways;
  if (values >= ranks) ways.push_back({kVocabulary, {}, {}, {{"weight", {0, values}}}, width, 0});
  if (width >= ranks) ways.push_back({kColumns, {}, {-1, width}, {{"weight", {1, width}}}, 0, 0});
  return ways;
}

void SplitTable::split(const SplitWay& way, TensorAxis& axis) {
  axis_ = &axis;
  by_values_ = way.name == kVocabulary;
  values_ = way.cuts.at(0).cut.whole_size();
}

// A code that another rank has reads row 0 here, and is struck out.
at::Tensor SplitTable::operator()(const at::Tensor& codes, const at::Tensor& weight, int64_t padding) const {
  if (axis_ == nullptr || !by_values_) return at::embedding(weight, codes, padding);
  const Range mine = axis_->my_share(values_);
  const at::Tensor here = codes.sub(mine.begin);
  const at::Tensor elsewhere = here.lt(0).logical_or_(here.ge(mine.size()));
  const int64_t padding_here = padding >= mine.begin && padding < mine.end ? padding - mine.begin : -1;
  const at::Tensor rows = at::embedding(weight, here.masked_fill(elsewhere, 0), padding_here);
  return sum_parts(rows.masked_fill(elsewhere.unsqueeze(-1), 0), *axis_);
}

at::Tensor EmbeddingImpl::forward(const at::Tensor& codes) {
  if (options.max_norm() || options.sparse()) return torch::nn::EmbeddingImpl::forward(codes);
  return table_(codes, weight, options.padding_idx().value_or(-1));
}

std::vector<SplitWay> EmbeddingImpl::ways(int ranks) const { return embedding_ways(*this, ranks); }

}  // namespace troika
