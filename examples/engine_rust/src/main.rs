//! Quantizes two rows of floats to int8 with one scale a row, by one plan on the host, and shows what
//! planq says of an operand that is wrong.

mod planq;

use planq::{Error, HostStream, Operand, Plan};

// What to compute, as Python's desc.to_json() writes it. "m" is known when the plan runs.
const DESCRIPTOR: &str = r#"{"op": "dynamic_range_quantize", "shape": [{"dim": "m", "max": 16}, 4],
    "input_dtype": "float32", "output_dtype": "int8", "scope": {"kind": "token"}}"#;

fn main() -> Result<(), Error> {
    let stream = HostStream::new(1);
    let plan = Plan::select(stream, DESCRIPTOR, r#"{"determinism": "bit_exact"}"#)?;
    println!("{} needs {} bytes", plan.sku()?, plan.workspace_size()?);

    let mut input = [0.5, -1.0, 127.0, 3.0, 1.0, 2.0, -4.0, 0.0f32];
    let (mut output, mut scale) = ([0i8; 8], [0f32; 2]);
    plan.run(
        stream,
        &mut [
            Operand::new(c"input", &mut input, &[2, 4]),
            Operand::new(c"output", &mut output, &[2, 4]),
            Operand::new(c"scale", &mut scale, &[2]),
        ],
    )?;
    for (row, scale) in output.chunks(4).zip(scale) {
        println!("{row:?}, scale {scale:.6}");
    }

    let wrong = plan.run(stream, &mut [Operand::new(c"input", &mut input, &[8])]);
    println!("{}", wrong.expect_err("an operand of another shape"));
    Ok(())
}
