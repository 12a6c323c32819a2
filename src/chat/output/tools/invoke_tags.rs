//! Calls as tags with a name attribute: `<invoke name="f"><parameter name="x">1</parameter></invoke>`.

use serde_json::{Map, Value};

use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall};

/// Calls of this kind, in a block of tags or without one.
#[derive(Debug)]
pub(super) struct InvokeTags {
    /// The tag of a block, if the family has one, then the beginnings of calls.
    openings: &'static [&'static str],
    /// The end of a block; empty for a family without blocks.
    closing: &'static str,
    invoke: &'static str,
    invoke_end: &'static str,
    parameter: &'static str,
    parameter_end: &'static str,
    /// Whether values are written with the entities of XML.
    has_entities: bool,
}

pub(super) const MINIMAX: InvokeTags = InvokeTags {
    openings: &["<minimax:tool_call>", "<invoke name="],
    closing: "</minimax:tool_call>",
    invoke: "<invoke name=",
    invoke_end: "</invoke>",
    parameter: "<parameter name=",
    parameter_end: "</parameter>",
    has_entities: false,
};

pub(super) const MINICPM: InvokeTags = InvokeTags {
    openings: &["<function name=", "<functionname="],
    closing: "",
    invoke: "<function name=",
    invoke_end: "</function>",
    parameter: "<param name=",
    parameter_end: "</param>",
    has_entities: true,
};

pub(super) const MUSE: InvokeTags = InvokeTags {
    openings: &["<atem:function_calls>", "<atem:invoke name="],
    closing: "</atem:function_calls>",
    invoke: "<atem:invoke name=",
    invoke_end: "</atem:invoke>",
    parameter: "<atem:parameter name=",
    parameter_end: "</atem:parameter>",
    has_entities: false,
};

pub(super) const DEEPSEEK: InvokeTags = InvokeTags {
    openings: &[
        "<｜DSML｜function_calls>",
        "<｜DSML｜tool_calls>",
        "<｜DSML｜invoke name=",
    ],
    closing: "</｜DSML｜function_calls>",
    invoke: "<｜DSML｜invoke name=",
    invoke_end: "</｜DSML｜invoke>",
    parameter: "<｜DSML｜parameter name=",
    parameter_end: "</｜DSML｜parameter>",
    has_entities: false,
};

impl Syntax for InvokeTags {
    fn openings(&self) -> &'static [&'static str] {
        self.openings
    }

    fn seed(&self, name: Option<&str>) -> String {
        let block = match self.closing {
            "" => String::new(),
            _ => format!("{}\n", self.openings[0]),
        };
        match name {
            Some(name) => format!("{block}{}\"{name}\">", self.invoke),
            None => format!("{block}{}\"", self.invoke),
        }
    }

    fn first(
        &self,
        opening: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Vec<ToolCall>> {
        if opening.ends_with('>') {
            cursor.space();
            cursor.expect(self.invoke)?;
        }
        Ok(vec![self.call(cursor, tools)?])
    }

    fn next(
        &self,
        opening: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Option<Vec<ToolCall>>> {
        cursor.space();
        if cursor.eat(self.invoke)? {
            return Ok(Some(vec![self.call(cursor, tools)?]));
        }
        let closing = match opening {
            "<｜DSML｜tool_calls>" => "</｜DSML｜tool_calls>",
            _ => self.closing,
        };
        if closing.is_empty() || !cursor.eat(closing)? {
            return Err(Stop::Not);
        }
        Ok(None)
    }
}

impl InvokeTags {
    /// Reads from behind `name=` to behind the end of the call.
    fn call(&self, cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<ToolCall> {
        let (name, _) = attributes(cursor)?;
        let mut arguments = Map::new();
        loop {
            cursor.space();
            let collapsed = self.parameter.replace(' ', "");
            match cursor.eat_one_of(&[self.invoke_end, self.parameter, &collapsed])? {
                Some(0) => break,
                Some(_) => {
                    let (parameter, others) = attributes(cursor)?;
                    let value = self.value(cursor)?;
                    let value = match others.contains("string=\"true\"") {
                        true => Value::String(value),
                        false => tools.decode(name, parameter, &value),
                    };
                    arguments.insert(parameter.to_owned(), value);
                }
                None => return Err(Stop::Not),
            }
        }
        Ok(ToolCall {
            name: name.to_owned(),
            arguments,
        })
    }

    /// The value of a parameter. The text of its end counts where another tag follows it.
    fn value(&self, cursor: &mut Cursor<'_>) -> Read<String> {
        let mut quoted = *cursor;
        quoted.space();
        if quoted.eat("<![CDATA[")? {
            let value = quoted.until("]]>")?;
            quoted.space();
            quoted.expect(self.parameter_end)?;
            *cursor = quoted;
            return Ok(value.to_owned());
        }
        let text = cursor.rest();
        let mut from = 0;
        loop {
            let found = text[from..].find(self.parameter_end);
            let at = from + found.ok_or_else(|| cursor.more())?;
            let mut ahead = *cursor;
            ahead.skip(at + self.parameter_end.len());
            let after = ahead;
            ahead.space();
            let follows = [self.invoke_end, self.parameter];
            if ahead.is_finished() || ahead.eat_one_of(&follows)?.is_some() {
                *cursor = after;
                let value = &text[..at];
                let value = value.strip_prefix('\n').unwrap_or(value);
                let value = value.strip_suffix('\n').unwrap_or(value);
                return Ok(match self.has_entities {
                    true => without_entities(value),
                    false => value.to_owned(),
                });
            }
            from = at + 1;
        }
    }
}

/// Reads a tag to its end, from behind `name=`: the name, and the other attributes.
fn attributes<'a>(cursor: &mut Cursor<'a>) -> Read<(&'a str, &'a str)> {
    let tag = cursor.word(|character| !matches!(character, '>' | '<' | '\n'))?;
    cursor.expect(">")?;
    let tag = tag.trim();
    let (name, others) = match tag.chars().next() {
        Some(quote @ ('"' | '\'')) => tag[1..].split_once(quote).ok_or(Stop::Not)?,
        _ => tag.split_once(char::is_whitespace).unwrap_or((tag, "")),
    };
    let name = name.trim();
    if name.is_empty() {
        return Err(Stop::Not);
    }
    Ok((name, others))
}

fn without_entities(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}
