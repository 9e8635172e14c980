// dynamic_range_quantize on CUDA: which kernels exist, and which descriptors each takes. What they
// do is the family's: affine/segments/rows.cuh and its neighbours have the kernels, and
// rows_launch.cuh and its neighbours start them. Compiled once for each input type: cuda_f16.cu and
// its neighbours name the type and include this file.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/scratch.h"
#include "core/sku.h"
#include "cuda/element.cuh"
#include "ops/affine/dynamic_range_quantize/desc.h"
#include "ops/affine/segments/columns_launch.cuh"
#include "ops/affine/segments/elements_launch.cuh"
#include "ops/affine/segments/resident_launch.cuh"
#include "ops/affine/segments/rows_launch.cuh"
#include "ops/affine/segments/split_launch.cuh"
#include "ops/affine/segments/tiles_launch.cuh"

namespace planq::dynamic_range_quantize {
namespace {

using namespace affine;

using In = cuda::Element;
constexpr DType kIn = cuda::kElement;
using C = Compute<In>;
constexpr int kVector = kPerVector<In>;

SegmentedTensor segmented(const Fields& f) {
  return {f.shape, planq::with_groups(f.shape, f.scope), f.output_dtype};
}
Quantization<C> quantization(const Fields& f) {
  return {segmented(f), spec_of<C>(f), f.nibble_order};
}

// --- Kernels of the registry -------------------------------------------------------------------

enum class Body {
  Subwarps,
  Registers,
  Cluster,
  Columns,
  Tiles,
  ColumnGroups,
  Resident,
  Split,
  Elements
};

struct BodyInfo {
  std::string_view name;
  std::int16_t rank;
  std::int32_t first_arch;
};
constexpr BodyInfo kBodies[] = {
    {"row_lanes", 10, 80}, {"row_registers", 20, 80}, {"row_cluster", 30, 90},
    {"columns", 40, 80},   {"tiles", 45, 80},         {"column_groups", 50, 80},
    {"resident", 55, 90},  {"split", 60, 80},         {"elements", 70, 80},
};
constexpr const BodyInfo& info(Body body) { return kBodies[static_cast<std::size_t>(body)]; }

template <class... Pieces>
Reason refuse_shape(const Pieces&... pieces) {
  return Reason::refuse(ReasonKind::Shape, pieces...);
}

Reason refuse_segments(const Outline& o) {
  return refuse_shape(o.segments, " segments are more than a grid numbers");
}

Reason rejects_consecutive(const SegmentedTensor& t, const Outline& o) {
  if (o.consecutive) return Reason::accept();
  if (t.scope.kind == ScopeKind::Group && t.scope.axis == t.shape.rank - 1)
    return refuse_shape("groups of ", t.scope.size, " four-bit codes begin inside a byte");
  return refuse_shape("the elements of a ", name_of(t.scope.kind), " along axis ", t.scope.axis,
                      " are not consecutive");
}

Reason rejects_size(Body body, const Outline& o, const Device& device) {
  const int64_t vectors = vectors_of<In>(o.elements);
  const auto refuse_size = [&](const auto&... pieces) {
    return refuse_shape("a segment of ", o.elements, " elements ", pieces...);
  };
  const int64_t most = body == Body::Subwarps    ? cuda::kWarp
                       : body == Body::Registers ? kBlockVectors
                                                 : kBlockVectors * kMaxCluster;
  constexpr std::string_view kWhere[] = {"a warp's lanes", "a block's registers",
                                         "a cluster's registers"};
  if (vectors > most)
    return refuse_size("does not fit ", kWhere[static_cast<std::size_t>(body)], " (",
                       most * kVector, ")");
  if (o.segments > cuda::kMaxIndex / kMaxCluster) return refuse_segments(o);
  if (body == Body::Registers && vectors <= cuda::kWarp)
    return refuse_size("leaves most threads of a block idle");
  if (body == Body::Registers && spreads<In>(o, device.multiprocessors, device.arch))
    return refuse_shape(o.segments, " long segments leave multiprocessors idle");
  if (body == Body::Cluster && vectors <= kBlockVectors &&
      !spreads<In>(o, device.multiprocessors, device.arch))
    return refuse_size("fits one block");
  return Reason::accept();
}

Reason rejects_columns(const SegmentedTensor& t, const Outline& o) {
  const bool last = t.scope.axis == t.shape.rank - 1;
  if (last || (o.outer != 1 && o.inner < kShortSpan)) return Reason::accept();
  return refuse_shape("a channel has runs of ", o.inner, " consecutive elements");
}

Reason rejects_tiles(const SegmentedTensor& t, const Outline& o) {
  if (o.segments > cuda::kMaxIndex / kMaxCluster) return refuse_segments(o);
  const int last = t.shape.rank - 1;
  if (t.scope.kind == ScopeKind::Group && t.scope.axis != last) return Reason::accept();
  if (shares_bytes(t.shape, t.scope, t.output_dtype))
    return refuse_shape("tiles of ", t.scope.size, " four-bit columns begin inside a byte");
  const bool block = t.scope.kind == ScopeKind::Block;
  const int64_t rows = block ? std::min(t.scope.rows, t.shape[last - 1]) : 1;
  const int64_t columns = std::min(t.scope.size, t.shape[last]);
  if (rows * vectors_of<In>(columns) <= kBlockVectors) return Reason::accept();
  return refuse_shape("a tile of ", rows, " x ", columns,
                      " elements does not fit a block's registers (", kBlockVectors * kVector, ")");
}

Reason rejects_shape(Body body, const SegmentedTensor& t, const Device& device) {
  const Outline o = outline(t);
  switch (body) {
    case Body::Subwarps:
    case Body::Registers:
    case Body::Cluster: {
      const Reason reason = rejects_consecutive(t, o);
      return reason.accepted() ? rejects_size(body, o, device) : reason;
    }
    case Body::Columns:
      return rejects_columns(t, o);
    case Body::Tiles:
      return rejects_tiles(t, o);
    case Body::ColumnGroups:
      if (o.segments > cuda::kMaxIndex) return refuse_segments(o);
      return t.scope.axis != t.shape.rank - 1
                 ? Reason::accept()
                 : refuse_shape("groups along the last axis are not columns");
    case Body::Resident:
      if (device.shared_memory_per_block < std::size_t{kHeldBytes})
        return Reason::refuse(ReasonKind::Device, "needs ", kHeldBytes,
                              " bytes of shared memory for a block, the device has ",
                              device.shared_memory_per_block);
      return o.elements * static_cast<int64_t>(sizeof(In)) <= kResidentInputBytes
                 ? Reason::accept()
                 : refuse_shape("a tensor of ", o.elements,
                                " elements leaves too much to be read twice");
    case Body::Split:
      if (o.segments > cuda::kMaxIndex) return refuse_segments(o);
      if (t.scope.kind == ScopeKind::Channel && t.scope.axis != t.shape.rank - 1)
        return Reason::accept();
      return rejects_consecutive(t, o);
    case Body::Elements:
      return Reason::accept();
  }
  return Reason::accept();
}

template <Body kBody, ScopeKind kScope, DType kOut>
Reason rejects(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  const auto refuse = [](ReasonKind kind, std::string_view what, std::string_view own,
                         std::string_view asked) {
    return Reason::refuse(kind, "computes ", what, " ", own, ", not ", asked);
  };
  if (f.input_dtype != kIn)
    return refuse(ReasonKind::DType, "input_dtype", name_of(kIn), name_of(f.input_dtype));
  if (f.output_dtype != kOut)
    return refuse(ReasonKind::DType, "output_dtype", name_of(kOut), name_of(f.output_dtype));
  if (f.scope.kind != kScope)
    return refuse(ReasonKind::Scope, "scope", name_of(kScope), name_of(f.scope.kind));
  if (const Reason reason = rejects_formats(f); !reason.accepted()) return reason;
  return rejects_shape(kBody, segmented(f), device);
}

template <Body kBody>
std::size_t workspace(const Descriptor& descriptor, const Device& device) {
  const SegmentedTensor t = segmented(descriptor.as<Fields>());
  Scratch scratch;
  if constexpr (kBody == Body::Elements) return element_workspace<In>(t);
  if constexpr (kBody == Body::Split || kBody == Body::Resident)
    book_split<In>(t, device.multiprocessors, scratch);
  if constexpr (kBody == Body::Resident) {
    Scratch resident;
    book_resident<In>(device.multiprocessors, resident);
    return std::max(scratch.bytes(), resident.bytes());
  }
  if constexpr (kBody == Body::Columns) {
    book_columns<In>(t, device.multiprocessors, scratch);
    return std::max(scratch.bytes(), element_workspace<In>(t));
  }
  return scratch.bytes();
}

// The same for any extents up to these: fewer segments may be cut into more parts.
template <Body kBody>
std::size_t largest_workspace(const Descriptor& descriptor, const Device& device) {
  const SegmentedTensor t = segmented(descriptor.as<Fields>());
  if constexpr (kBody == Body::Columns)
    return std::max(largest_columns<In>(t, device.multiprocessors), element_workspace<In>(t));
  return std::max(largest_split<In>(t, device.multiprocessors),
                  workspace<kBody>(descriptor, device));
}

template <Body kBody, Codes kCodes>
Status prepare(const Descriptor& descriptor, const Device&, State&) {
  const Quantization<C> q = quantization(descriptor.as<Fields>());
  if constexpr (kBody == Body::Subwarps) return preload_subwarps<In, kCodes>(q.spec);
  if constexpr (kBody == Body::Registers || kBody == Body::Cluster)
    return preload_rows<In, kCodes>(q.spec, kBody == Body::Cluster);
  if constexpr (kBody == Body::Columns) return preload_columns<In, kCodes>(q.spec);
  if constexpr (kBody == Body::ColumnGroups) return preload_column_groups<In, kCodes>();
  if constexpr (kBody == Body::Tiles) return preload_tiles<In, kCodes>(q);
  if constexpr (kBody == Body::Elements) return preload_elements<In, kCodes>();
  if constexpr (kBody == Body::Resident && kHasResident<In, kCodes>)
    PLANQ_TRY((preload_resident<In, kCodes>(q.spec)));
  return preload_split<In, kCodes>(q.spec);
}

template <Body kBody, Codes kCodes>
Status bind(const Call& call, Bound& bound) {
  const Operands& o = call.operands;
  const Launch<In> launch{quantization(call.fields<Fields>()),
                          call.device.multiprocessors,
                          call.device.arch,
                          {&o[kInput], &o[kOutput], &o[kScale], &o[kZeroPoint]},
                          call.workspace,
                          bound};
  if constexpr (kBody == Body::Subwarps) return launch_subwarps<kCodes>(launch);
  if constexpr (kBody == Body::Registers) return launch_rows<kCodes>(launch, 1);
  if constexpr (kBody == Body::Cluster)
    return launch_rows<kCodes>(launch, cluster_of<In>(launch.tensor, launch.multiprocessors));
  if constexpr (kBody == Body::Columns) return launch_columns<kCodes>(launch);
  if constexpr (kBody == Body::ColumnGroups) return launch_column_groups<kCodes>(launch);
  if constexpr (kBody == Body::Tiles) return launch_tiles<kCodes>(launch);
  if constexpr (kBody == Body::Elements) return launch_elements<kCodes>(launch);
  if constexpr (kBody == Body::Resident && kHasResident<In, kCodes>)
    return launch_resident<kCodes>(launch);
  return launch_split<kCodes>(launch);
}

template <Body kBody, ScopeKind kScope, DType kOut>
constexpr Kernel make_kernel() {
  constexpr bool kDouble = std::is_same_v<C, double>;
  return {
      .op = "dynamic_range_quantize",
      .variant = name_of(kScope),
      .body = info(kBody).name,
      .dtypes = kDTypes<kIn, kOut>,
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {info(kBody).first_arch, 9999},
      .rank = info(kBody).rank,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kDouble ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kDouble ? DType::Float64 : DType::Float32,
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = std::string_view("exact integer maximum of magnitudes; correctly "
                                              "rounded quotients; round to nearest even; no "
                                              "atomics on data")},
      .rejects = rejects<kBody, kScope, kOut>,
      .workspace = workspace<kBody>,
      .prepare = prepare<kBody, codes_of(kOut)>,
      .bind = bind<kBody, codes_of(kOut)>,
      .largest_workspace = kBody == Body::Split || kBody == Body::Resident || kBody == Body::Columns
                               ? largest_workspace<kBody>
                               : nullptr,
  };
}

// One kernel per body and scope that go together, and output type.
struct Pair {
  Body body;
  ScopeKind scope;
};
constexpr Pair kPairs[] = {
    {Body::Subwarps, ScopeKind::Tensor},  {Body::Subwarps, ScopeKind::Channel},
    {Body::Subwarps, ScopeKind::Token},   {Body::Subwarps, ScopeKind::Group},
    {Body::Registers, ScopeKind::Tensor}, {Body::Registers, ScopeKind::Channel},
    {Body::Registers, ScopeKind::Token},  {Body::Registers, ScopeKind::Group},
    {Body::Cluster, ScopeKind::Tensor},   {Body::Cluster, ScopeKind::Channel},
    {Body::Cluster, ScopeKind::Token},    {Body::Cluster, ScopeKind::Group},
    {Body::Columns, ScopeKind::Channel},  {Body::ColumnGroups, ScopeKind::Group},
    {Body::Resident, ScopeKind::Tensor},  {Body::Split, ScopeKind::Tensor},
    {Body::Split, ScopeKind::Channel},    {Body::Split, ScopeKind::Token},
    {Body::Split, ScopeKind::Group},      {Body::Elements, ScopeKind::Tensor},
    {Body::Elements, ScopeKind::Channel}, {Body::Elements, ScopeKind::Token},
    {Body::Elements, ScopeKind::Group},   {Body::Tiles, ScopeKind::Block},
    {Body::Elements, ScopeKind::Block},
};

// Pair after pair of output types whose codes have the same bytes.
constexpr DType kOutputs[] = {DType::Int8,       DType::UInt8, DType::Float8E4M3FN,
                              DType::Float8E5M2, DType::Int4,  DType::UInt4};

template <std::size_t... kIndex>
constexpr std::array<Kernel, sizeof...(kIndex)> table(std::index_sequence<kIndex...>) {
  constexpr std::size_t kBoth = 2 * std::size(kPairs);
  return {make_kernel<kPairs[kIndex % kBoth / 2].body, kPairs[kIndex % kBoth / 2].scope,
                      kOutputs[kIndex / kBoth * 2 + kIndex % 2]>()...};
}

// All output types in one file: their kernels have much in common, and what a file has in common is
// packed once.
constexpr auto kKernels =
    table(std::make_index_sequence<std::size(kPairs) * std::size(kOutputs)>{});

}  // namespace

}  // namespace planq::dynamic_range_quantize
